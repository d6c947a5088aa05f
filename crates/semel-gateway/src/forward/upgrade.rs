//! Connections that stop speaking HTTP.

use bytes::Bytes;
use http::{
    Method, Request, Response,
    header::{CONNECTION, CONTENT_LENGTH, UPGRADE},
};
use hyper::{body::Incoming, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWriteExt, copy_bidirectional};

use super::{ResponseBody, hop};
use crate::{
    pool::{Link, Payload},
    serve::Core,
};

/// The client's side, where the request asks for an upgrade that is passed on.
///
/// Only a GET upgrades (as WebSocket does), so that no unsafe method slips past a guard by asking for one. `h2c` is
/// not passed on: behind it the client would speak to the upstream past every rule.
pub(super) fn wanted<B>(request: &mut Request<B>) -> Option<OnUpgrade> {
    let headers = request.headers();
    if !headers.contains_key(CONNECTION) || request.method() != Method::GET {
        return None;
    }
    let mut protocols = headers.get_all(UPGRADE).iter().flat_map(|v| v.as_bytes().split(|b| *b == b','));
    if protocols.any(|p| p.trim_ascii().eq_ignore_ascii_case(b"h2c")) {
        return None;
    }
    request.extensions().get::<OnUpgrade>()?;
    Some(hyper::upgrade::on(request))
}

/// Answers 101 and copies bytes both ways until one side fails, both have ended, or the drain's time is over.
pub(super) fn join<B>(
    core: &Core,
    client: OnUpgrade,
    link: Box<Link<B>>,
    answer: Response<Incoming>,
) -> Response<ResponseBody<B>>
where
    B: Payload,
{
    core.spawn_counted(async move {
        let Some(mut upstream) = link.into_upgraded().await else { return };
        // Resolves when the 101 is on its way; fails when the client has gone.
        let Ok(client) = client.await else { return };
        let mut client = TokioIo::new(client);
        if !upstream.read.is_empty() && client.write_all(&upstream.read).await.is_err() {
            return;
        }
        let ended = copy_bidirectional(&mut client, &mut upstream.stream).await;
        tracing::debug!(?ended, "upgraded connection ended");
    });
    let (mut head, _) = answer.into_parts();
    hop::strip_response(&mut head.headers, hop::Keep::Upgrade);
    head.headers.remove(CONTENT_LENGTH);
    Response::from_parts(head, ResponseBody::from(Bytes::new()))
}
