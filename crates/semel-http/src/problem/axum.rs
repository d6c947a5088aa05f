//! A problem as an answer of a handler.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};

use super::{Asker, Problem};

/// The document, as somebody is told who prefers neither text nor a language. For one who may,
/// [`Problem::answer`] takes the [`Asker`].
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.answer(&Asker::default()).map(Body::from)
    }
}
