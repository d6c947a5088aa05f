//! What the beds have in common.

pub(crate) mod shared;
pub(crate) mod spread;

use std::time::Duration;

use bytes::Bytes;
use semel_core::env::Env;
use semel_redis::{Options, RedisStore};
use semel_testkit::servers::redis::{Said, ask};

/// How far off the server's clock a claim's own time may be: by what a busy machine takes for a question and its answer.
pub(crate) const RECKONED_WITHIN: Duration = Duration::from_secs(1);

/// A client with its own connections; the machine may be busy with other tests, and a Cluster's nodes in doubt about each other
/// for that.
pub(crate) async fn connect(url: &str, prefix: &str) -> RedisStore {
    let mut options = Options::default();
    options.prefix = prefix.to_owned();
    connect_with(url, options).await
}

/// The same with options of its own.
pub(crate) async fn connect_with(url: &str, mut options: Options) -> RedisStore {
    options.connect_timeout = Duration::from_secs(10);
    options.response_timeout = Duration::from_secs(10);
    for _ in 0..10 {
        match RedisStore::connect(url, &Env::system(), options.clone()).await {
            Err(error) if error.is_temporary() => tokio::time::sleep(Duration::from_millis(200)).await,
            opened => return opened.expect("the store opens"),
        }
    }
    panic!("the store at {url} does not open");
}

/// Moves the times of all records under a prefix back, with the servers' own expiry of them.
const MOVE_BACK: &str = r"
local by, cursor, keys = tonumber(ARGV[2]), '0', {}
repeat
  local step = redis.call('SCAN', cursor, 'MATCH', ARGV[1], 'COUNT', 1000)
  cursor = step[1]
  for _, k in ipairs(step[2]) do keys[k] = true end
until cursor == '0'
for k in pairs(keys) do
  local v = redis.call('GET', k)
  if v and #v >= 84 and string.sub(v, 1, 4) == 'SML\1' and string.byte(v, 5) <= 4 then
    local le, ex = struct.unpack('>I8I8', string.sub(v, 33, 48))
    if le > 0 then le = le - by end
    local left = redis.call('PTTL', k)
    redis.call('SET', k, string.sub(v, 1, 32) .. struct.pack('>I8I8', le, ex - by) .. string.sub(v, 49), 'KEEPTTL')
    if left > 0 then redis.call('PEXPIRE', k, string.format('%d', left - math.floor(by / 1000))) end
  end
end
return 'moved'";

pub(crate) async fn move_back(port: u16, prefix: &str, by: Duration) {
    let (pattern, by) = (format!("{prefix}:*"), by.as_micros().to_string());
    let command: &[&[u8]] = &[b"EVAL", MOVE_BACK.as_bytes(), b"0", pattern.as_bytes(), by.as_bytes()];
    let said = ask(port, command).await.expect("the server answers");
    assert_eq!(said.text(), "moved");
    // A little passes in truth: what clients reckon of the server's clock is not exact to the microsecond.
    tokio::time::sleep(Duration::from_millis(5)).await;
}

/// Puts bytes under a key without an end, as a restored backup does; or takes the key away. `false` where another
/// server has the key.
pub(crate) async fn plant(port: u16, key: &str, bytes: Option<Bytes>) -> bool {
    let said = match &bytes {
        Some(bytes) => ask(port, &[b"SET", key.as_bytes(), bytes]).await,
        None => ask(port, &[b"DEL", key.as_bytes()]).await,
    };
    match said.expect("the server answers") {
        Said::Error(error) if error.starts_with("MOVED") => false,
        Said::Error(error) => panic!("{error}"),
        _ => true,
    }
}
