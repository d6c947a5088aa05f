//! Whose key it is: scopes, and how a caller without a verified name is told from another.

mod credentials;
mod identify;

pub use credentials::{Credentials, DEFAULT_CREDENTIALS};
pub use identify::{
    ApiKey, ByExtension, Identify, PrincipalError, Shared, TrustedHeader, api_key, extension, shared, trusted_header,
};
