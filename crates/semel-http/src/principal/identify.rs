//! Who calls.

use std::fmt;

use bytes::Bytes;
use http::HeaderName;
use semel_core::identity::{Principal, PrincipalKind, Purpose, Scope, Secret};

use crate::view::RequestView;

/// Finds out who calls. Object safe; it only reads what a layer in front has verified.
pub trait Identify: Send + Sync + 'static {
    /// The caller's scope.
    ///
    /// # Errors
    /// [`PrincipalError`] where the request names nobody; answered with 403 `principal-missing`.
    fn scope(&self, request: &RequestView<'_>, secret: &Secret) -> Result<Scope, PrincipalError>;

    /// The header field it reads, for messages; none where it reads something else.
    fn header(&self) -> Option<&HeaderName> {
        None
    }
}

/// The request names nobody, so its key belongs to nobody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PrincipalError {
    /// The header field is missing or empty.
    Missing,
    /// The header field is there more than once.
    Ambiguous,
}

impl fmt::Display for PrincipalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "the request names no principal",
            Self::Ambiguous => "the request names more than one principal",
        })
    }
}

impl std::error::Error for PrincipalError {}

/// See [`trusted_header`].
#[derive(Clone, Debug)]
pub struct TrustedHeader(HeaderName);

/// The principal is the value of a header field that the authenticating proxy in front sets, *and removes from what
/// clients send*.
#[must_use]
pub const fn trusted_header(name: HeaderName) -> TrustedHeader {
    TrustedHeader(name)
}

/// See [`api_key`].
#[derive(Clone, Debug)]
pub struct ApiKey(HeaderName);

/// The principal is a keyed digest of a static API key in this header field. Not for tokens that rotate: with the next
/// token the caller would be somebody else.
#[must_use]
pub const fn api_key(name: HeaderName) -> ApiKey {
    ApiKey(name)
}

/// See [`extension`].
pub struct ByExtension<T>(fn(&T) -> Principal);

/// The principal is made from a request extension that an authentication layer in front has left.
///
/// ```
/// use semel_core::identity::{Principal, PrincipalKind};
/// #[derive(Clone)]
/// struct User { id: u64 }
/// let who = semel_http::principal::extension(|u: &User| {
///     Principal::new(PrincipalKind::Subject, u.id.to_string())
/// });
/// ```
#[must_use]
pub const fn extension<T: Send + Sync + 'static>(principal: fn(&T) -> Principal) -> ByExtension<T> {
    ByExtension(principal)
}

/// See [`shared`].
#[derive(Clone, Copy, Debug)]
pub struct Shared;

/// One scope for all callers: a key means the same whoever sends it. The record then keeps a digest of the caller's
/// credentials, and a duplicate with others is refused without a stored byte.
#[must_use]
pub const fn shared() -> Shared {
    Shared
}

impl Identify for TrustedHeader {
    fn scope(&self, request: &RequestView<'_>, _secret: &Secret) -> Result<Scope, PrincipalError> {
        let value = only(request, &self.0)?;
        Ok(Scope::of(Principal::new(PrincipalKind::Header, Bytes::copy_from_slice(value))))
    }

    fn header(&self) -> Option<&HeaderName> {
        Some(&self.0)
    }
}

impl Identify for ApiKey {
    fn scope(&self, request: &RequestView<'_>, secret: &Secret) -> Result<Scope, PrincipalError> {
        let digest = secret.digest(Purpose::ApiKey, &[only(request, &self.0)?]);
        let id = Bytes::copy_from_slice(digest.as_bytes());
        Ok(Scope::of(Principal::new(PrincipalKind::ApiKeyDigest, id)))
    }

    fn header(&self) -> Option<&HeaderName> {
        Some(&self.0)
    }
}

impl<T: Send + Sync + 'static> Identify for ByExtension<T> {
    fn scope(&self, request: &RequestView<'_>, _secret: &Secret) -> Result<Scope, PrincipalError> {
        request.extensions.get::<T>().map(|t| Scope::of((self.0)(t))).ok_or(PrincipalError::Missing)
    }
}

impl<T> fmt::Debug for ByExtension<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ByExtension({})", std::any::type_name::<T>())
    }
}

impl Identify for Shared {
    fn scope(&self, _request: &RequestView<'_>, _secret: &Secret) -> Result<Scope, PrincipalError> {
        Ok(Scope::shared())
    }
}

fn only<'a>(request: &RequestView<'a>, name: &HeaderName) -> Result<&'a [u8], PrincipalError> {
    let mut lines = request.headers.get_all(name).iter();
    let value = lines.next().map_or(&[][..], |line| line.as_bytes().trim_ascii());
    match (value, lines.next()) {
        ([], None) => Err(PrincipalError::Missing),
        (_, Some(_)) => Err(PrincipalError::Ambiguous),
        (value, None) => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn scope(who: &dyn Identify, lines: &[&str]) -> Result<Scope, PrincipalError> {
        let mut request = Request::new(());
        request.extensions_mut().insert(7_u64);
        for line in lines {
            request.headers_mut().append("x-user", line.parse().unwrap());
        }
        who.scope(&RequestView::of(&request), &Secret::from_material(b"0123456789abcdef").unwrap())
    }

    #[test]
    fn a_header_that_is_missing_empty_or_doubled_names_nobody() {
        let name = HeaderName::from_static("x-user");
        for who in [&trusted_header(name.clone()) as &dyn Identify, &api_key(name)] {
            assert_eq!(scope(who, &[]), Err(PrincipalError::Missing));
            assert_eq!(scope(who, &[" "]), Err(PrincipalError::Missing));
            assert_eq!(scope(who, &["alice", "bob"]), Err(PrincipalError::Ambiguous));
            assert_eq!(scope(who, &["alice"]), scope(who, &["alice"]));
            assert_ne!(scope(who, &["alice"]), scope(who, &["bob"]));
        }
    }

    #[test]
    fn an_extension_names_a_principal_and_shared_names_none() {
        let by = extension(|id: &u64| Principal::new(PrincipalKind::Subject, id.to_string()));
        assert!(scope(&by, &[]).unwrap().is_verified());
        let missing = extension(|id: &u8| Principal::new(PrincipalKind::Subject, id.to_string()));
        assert_eq!(scope(&missing, &[]), Err(PrincipalError::Missing));
        assert!(!scope(&shared(), &[]).unwrap().is_verified());
    }
}
