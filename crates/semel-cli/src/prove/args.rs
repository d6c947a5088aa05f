//! The flags of `semel prove`.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, Method};

use super::target::Target;
use crate::span;

const EXAMPLES: &str = "\
Examples:
  semel prove http://127.0.0.1:8080/orders
  semel prove http://127.0.0.1:8080/orders \\
      --rounds 200 --ramp 0 \\
      --body '{\"item\":\"book\",\"qty\":1}' \\
      --count-url http://127.0.0.1:3000/orders/count
  semel prove http://127.0.0.1:8080/orders \\
      --disconnect 0.3 --altered
  semel prove http://127.0.0.1:8080/orders \\
      --direct http://127.0.0.1:3000/orders
  semel prove http://127.0.0.1:8080/orders --no-key \\
      --body '{\"order_no\":\"{key}\"}' \\
      --effect-pointer /order_id

Each round has a key of its own and is followed by one repeat; the last round is followed by one request with another key, \
which takes effect too.
Exit codes: 0 safe, 1 a finding or not shown, 2 usage, 3 unreachable or ended early.";

/// Fires rounds of concurrent duplicates at an HTTP endpoint, guarded by Semel or not, and says how many took effect.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct Args {
    /// Where the copies go: an http:// or https:// address
    #[arg(env = "SEMEL_PROVE_URL")]
    pub url: Target,

    /// HTTP method
    #[arg(long, env = "SEMEL_PROVE_METHOD", default_value = "POST")]
    pub method: Method,

    /// Header field of every copy, 'Name: value'; repeat for more (in the variable: one per line)
    #[arg(
        long = "header",
        env = "SEMEL_PROVE_HEADER",
        value_name = "'K: V'",
        hide_env_values = true,
        value_delimiter = '\n'
    )]
    pub headers: Vec<String>,

    /// Body of every copy; {key} in it (and in headers) is replaced by the round's key [default: a small JSON order]
    #[arg(long, env = "SEMEL_PROVE_BODY", hide_env_values = true, value_name = "TEXT")]
    pub body: Option<String>,

    /// Body from a file, sent as it is
    #[arg(long, env = "SEMEL_PROVE_BODY_FILE", value_name = "FILE", conflicts_with = "body")]
    pub body_file: Option<PathBuf>,

    /// Content-Type of the body
    #[arg(long, env = "SEMEL_PROVE_CONTENT_TYPE", value_name = "TYPE", default_value = "application/json")]
    pub content_type: String,

    /// Header field that carries the key
    #[arg(long, env = "SEMEL_PROVE_KEY_HEADER", value_name = "NAME", default_value = "Idempotency-Key")]
    pub key_header: HeaderName,

    /// What every key begins with
    #[arg(long, env = "SEMEL_PROVE_KEY_PREFIX", value_name = "TEXT", default_value = "prove-")]
    pub key_prefix: String,

    /// Send no key header: the endpoint knows duplicates by something else
    #[arg(long, env = "SEMEL_PROVE_NO_KEY")]
    pub no_key: bool,

    /// Copies per round
    #[arg(long, env = "SEMEL_PROVE_CONCURRENCY", value_name = "N", default_value_t = 100,
          value_parser = whole::<u32>(1, 20_000))]
    pub concurrency: u32,

    /// The copies of a round start at random within this time, such as 250ms, 2s, 1min
    #[arg(long, env = "SEMEL_PROVE_RAMP", value_name = "TIME", default_value = "1s", value_parser = span::parse)]
    pub ramp: Duration,

    /// Rounds, each with a fresh key
    #[arg(long, env = "SEMEL_PROVE_ROUNDS", value_name = "N", default_value_t = 1,
          value_parser = whole::<u32>(1, 1_000_000))]
    pub rounds: u32,

    /// Longest wait for one answer
    #[arg(long, env = "SEMEL_PROVE_TIMEOUT", value_name = "TIME", default_value = "30s", value_parser = span::parse)]
    pub timeout: Duration,

    /// Share of the copies that hang up after sending, 0.0 to 1.0
    #[arg(long, env = "SEMEL_PROVE_DISCONNECT", default_value_t = 0.0, value_name = "FRACTION", value_parser = fraction)]
    pub disconnect: f64,

    /// Those copies hang up at random within this time after sending, early moments more often
    #[arg(long, env = "SEMEL_PROVE_DISCONNECT_WITHIN", value_name = "TIME", default_value = "300ms", value_parser = span::parse)]
    pub disconnect_within: Duration,

    /// After each round send the same key with another body (this one, or the body changed a little); 422 or 409 is right
    #[arg(long, env = "SEMEL_PROVE_ALTERED", value_name = "BODY", num_args = 0..=1, require_equals = true,
          default_missing_value = "")]
    pub altered: Option<String>,

    /// Check that a failure frees the key: first this body (the endpoint fails on it), then the good one
    #[arg(long, env = "SEMEL_PROVE_FAILING_BODY", value_name = "TEXT")]
    pub failing_body: Option<String>,

    /// The same with a header field that makes the endpoint fail, 'Name: value'
    #[arg(long, env = "SEMEL_PROVE_FAILING_HEADER", hide_env_values = true, value_name = "'K: V'")]
    pub failing_header: Option<String>,

    /// Read the number of effects from here, before and after: a JSON number or a text with one number
    #[arg(long, env = "SEMEL_PROVE_COUNT_URL", value_name = "URL")]
    pub count_url: Option<Target>,

    /// Where the number is in the JSON that --count-url answers, such as /orders/total
    #[arg(long, env = "SEMEL_PROVE_COUNT_POINTER", value_name = "POINTER", requires = "count_url", value_parser = pointer)]
    pub count_pointer: Option<String>,

    /// The member of a JSON answer that names the effect, such as /id [default: status, Location and body]
    #[arg(long, env = "SEMEL_PROVE_EFFECT_POINTER", value_name = "POINTER", value_parser = pointer)]
    pub effect_pointer: Option<String>,

    /// The header field of an answer that names the effect
    #[arg(long, env = "SEMEL_PROVE_EFFECT_HEADER", value_name = "NAME", conflicts_with = "effect_pointer")]
    pub effect_header: Option<HeaderName>,

    /// Effects that one key should have
    #[arg(long, env = "SEMEL_PROVE_EXPECT_EFFECTS", default_value_t = 1, value_name = "N",
          value_parser = whole::<u64>(0, u64::MAX))]
    pub expect_effects: u64,

    /// Wait until the count has stood still for this long where copies were left without an answer
    #[arg(long, env = "SEMEL_PROVE_SETTLE", value_name = "TIME", default_value = "500ms", value_parser = span::parse)]
    pub settle: Duration,

    /// Run the same load against this URL too, for comparison (usually the service behind the guard)
    #[arg(long, env = "SEMEL_PROVE_DIRECT", value_name = "URL")]
    pub direct: Option<Target>,

    /// File with the certificate of an authority (PEM) that https:// addresses are believed for, beside the machine's
    #[arg(long, env = "SEMEL_PROVE_CA", value_name = "FILE")]
    pub ca: Option<PathBuf>,

    /// Machine-readable result on stdout
    #[arg(long, env = "SEMEL_PROVE_JSON")]
    pub json: bool,

    /// Makes starts and hang-ups repeatable; keys are always new [default: random, printed]
    #[arg(long, env = "SEMEL_PROVE_SEED", value_name = "N", value_parser = whole::<u64>(0, u64::MAX))]
    pub seed: Option<u64>,
}

fn whole<T: TryFrom<u64>>(least: u64, most: u64) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse::<u64>().ok().filter(|number| (least..=most).contains(number));
        number
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| format!("expected a whole number from {least} to {most}"))
    }
}

fn fraction(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err("expected a number between 0.0 and 1.0".to_owned()),
    }
}

fn pointer(text: &str) -> Result<String, String> {
    if text.is_empty() || text.starts_with('/') {
        Ok(text.to_owned())
    } else {
        Err(format!("a JSON pointer begins with a slash: /{text}"))
    }
}
