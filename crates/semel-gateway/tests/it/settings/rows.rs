//! What can be seen by asking one thing after the other.

use std::time::Duration;

use super::bed::{Answer, Ask, Bed, File, ask, keyless, rule};

/// A file, and what comes of requests one after the other.
pub(super) struct Row {
    pub(super) file: File<'static>,
    steps: Vec<Step>,
}

struct Step {
    ask: Ask,
    short: &'static str,
    looks: Vec<Look>,
}

/// What else is looked at.
enum Look {
    /// The answer says this, somewhere.
    Says(&'static str),
    /// It does not.
    Lacks(&'static str),
    /// It is kept for so many seconds, a minute more or less.
    KeptFor(u64),
}

fn row(file: File<'static>) -> Row {
    Row { file, steps: Vec::new() }
}

impl Row {
    fn then(mut self, ask: Ask, short: &'static str) -> Self {
        self.steps.push(Step { ask, short, looks: Vec::new() });
        self
    }

    fn look(mut self, look: Look) -> Self {
        self.steps.last_mut().expect("a step before").looks.push(look);
        self
    }

    fn says(self, what: &'static str) -> Self {
        self.look(Look::Says(what))
    }

    fn lacks(self, what: &'static str) -> Self {
        self.look(Look::Lacks(what))
    }

    fn kept_for(self, seconds: u64) -> Self {
        self.look(Look::KeptFor(seconds))
    }
}

const HOUR: u64 = 3_600;

/// One row or more for each setting; beside it what would be without.
pub(super) fn rows() -> Vec<Row> {
    [nothing_said(), keys(), callers(), times(), duplicates(), outcomes(), fingerprints(), answers(), presets()]
        .into_iter()
        .flatten()
        .collect()
}

fn nothing_said() -> Vec<Row> {
    vec![
        row(rule(""))
            .then(ask("k"), "200 fresh")
            .kept_for(24 * HOUR)
            .then(ask("k"), "200 replayed")
            .says("effect 1")
            .then(ask("k").json("{}"), "422 rejected key-reused")
            .then(ask("k").at("/other"), "422 rejected key-reused")
            .then(keyless(), "400 rejected key-missing"),
        row(rule("mode = \"off\"")).then(ask("k"), "200 bypassed").then(ask("k"), "200 bypassed").says("effect 2"),
    ]
}

fn keys() -> Vec<Row> {
    let uuid = "8e03978e-40d5-43e8-bc93-6894a57f9324";
    vec![
        row(rule("key = [\"X-Key\", \"X-Other\"]"))
            .then(keyless().with("X-Other: k"), "200 fresh")
            .then(keyless().with("X-Key: k"), "200 replayed")
            .then(ask("k"), "400 rejected key-missing"),
        row(rule("key_min_length = 8"))
            .then(ask("1234567"), "400 rejected key-invalid")
            .then(ask("12345678"), "200 fresh"),
        row(rule("key_format = \"uuid\""))
            .then(ask("12345678"), "400 rejected key-invalid")
            .then(ask(uuid), "200 fresh"),
        row(rule("key_quoted = true")).then(ask("k"), "400 rejected key-invalid").then(ask("\"k\""), "200 fresh"),
        row(rule("key_pattern = \"order-[0-9]*\""))
            .then(ask("order-x"), "400 rejected key-invalid")
            .then(ask("order-4711"), "200 fresh"),
        row(rule("per_route = true"))
            .then(ask("k"), "200 fresh")
            .then(ask("k").at("/other"), "200 fresh")
            .then(ask("k"), "200 replayed"),
        row(rule("missing = \"optional\"")).then(keyless(), "200 bypassed"),
        row(File { tables: "[defaults]\nmissing = \"optional\"", rule: "missing = \"required\"", ..File::default() })
            .then(keyless(), "400 rejected key-missing"),
    ]
}

fn callers() -> Vec<Row> {
    let by = |name: &str, who: &str| ask("k").with(&format!("{name}: {who}"));
    let named = |principal, name: &'static str| {
        row(File { principal, ..File::default() })
            .then(by(name, "ann"), "200 fresh")
            .then(by(name, "bob"), "200 fresh")
            .says("effect 2")
            .then(by(name, "ann"), "200 replayed")
            .says("effect 1")
            .then(ask("k"), "403 rejected principal-missing")
    };
    vec![
        named("header = \"X-User\"", "X-User"),
        named("api_key = \"X-Api-Key\"", "X-Api-Key"),
        row(File { principal: "shared = true", ..File::default() })
            .then(by("X-User", "ann"), "200 fresh")
            .then(by("X-User", "bob"), "200 replayed")
            .then(by("Authorization", "bob"), "409 rejected duplicate"),
        row(rule("credentials = [\"X-Session\"]"))
            .then(by("X-Session", "a"), "200 fresh")
            .then(by("X-Session", "a").with("Authorization: x"), "200 replayed")
            .then(by("X-Session", "b"), "409 rejected duplicate")
            .lacks("effect"),
    ]
}

fn times() -> Vec<Row> {
    vec![
        row(rule("ttl = \"2h\"")).then(ask("k"), "200 fresh").kept_for(2 * HOUR),
        row(rule("max_attempts = 2\nrelease_on = [503]"))
            .then(ask("k").told("503"), "503 fresh")
            .then(ask("k").told("503"), "503 fresh")
            .then(ask("k"), "503 rejected parked"),
    ]
}

fn duplicates() -> Vec<Row> {
    let click = |id: &str| ask("k").with(&format!("X-Click: {id}"));
    let by = |who: &str, key: &str| ask(key).with(&format!("X-User: {who}"));
    vec![
        row(rule("on_duplicate = \"reject\""))
            .then(ask("k"), "200 fresh")
            .then(ask("k"), "409 rejected duplicate")
            .says("Already submitted."),
        row(rule("on_duplicate = \"reject\"\nreject_status = 429"))
            .then(ask("k"), "200 fresh")
            .then(ask("k"), "429 rejected duplicate")
            .says("retry-after: "),
        row(File { principal: "header = \"X-User\"", ..rule("suspect = \"reject\"") })
            .then(by("ann", "a"), "200 fresh")
            .then(by("ann", "b"), "409 rejected duplicate")
            .then(by("bob", "b"), "200 fresh"),
        row(rule("on_duplicate = \"reject\"\nmessage = \"That order is in.\""))
            .then(ask("k"), "200 fresh")
            .then(ask("k"), "409 rejected duplicate")
            .says("That order is in."),
        row(rule("on_duplicate = \"reject\"\nretry_id = [\"X-Click\"]"))
            .then(click("1"), "200 fresh")
            .then(click("1"), "200 replayed")
            .then(click("2"), "409 rejected duplicate"),
    ]
}

fn outcomes() -> Vec<Row> {
    let told = |status: &str| ask("k").told(status);
    vec![
        row(rule("strictness = \"strict\""))
            .then(told("500"), "500 unknown")
            .then(told("200"), "409 unknown outcome-unknown"),
        row(rule("strictness = \"relaxed\"")).then(told("500"), "500 fresh").then(told("200"), "200 fresh"),
        row(rule("release_on = [404]")).then(told("404"), "404 fresh").then(told("200"), "200 fresh"),
        row(rule("keep_on = [500]")).then(told("500"), "500 fresh").then(told("200"), "500 replayed"),
        row(rule("unknown_on = [404]"))
            .then(told("404"), "404 unknown")
            .then(told("200"), "409 unknown outcome-unknown"),
        // Each list in its place where all three are there.
        row(rule("release_on = [500]\nkeep_on = [501]\nunknown_on = [201]"))
            .then(ask("a").told("500"), "500 fresh")
            .then(ask("a").told("200"), "200 fresh")
            .then(ask("b").told("501"), "501 fresh")
            .then(ask("b").told("200"), "501 replayed")
            .then(ask("c").told("201"), "201 unknown")
            .then(ask("c").told("200"), "409 unknown outcome-unknown"),
    ]
}

fn fingerprints() -> Vec<Row> {
    const REUSED: &str = "422 rejected key-reused";
    let json = |body: &str| ask("k").json(body);
    let form = |body: &str| ask("k").form(body);
    vec![
        row(rule("fingerprint = \"bytes\""))
            .then(json("{\"a\":1,\"b\":2}"), "200 fresh")
            .then(json("{\"b\":2,\"a\":1}"), REUSED),
        row(rule("fingerprint = \"json\""))
            .then(json("{\"a\":1,\"b\":2}"), "200 fresh")
            .then(json("{ \"b\": 2.0, \"a\": 1 }"), "200 replayed")
            .then(json("{\"a\":1,\"b\":3}"), REUSED),
        row(rule("fingerprint = { json = { include = [\"/order\"] } }"))
            .then(json("{\"order\":1,\"at\":1}"), "200 fresh")
            .then(json("{\"order\":1,\"at\":2}"), "200 replayed")
            .then(json("{\"order\":2,\"at\":1}"), REUSED),
        row(rule("fingerprint = { json = { exclude = [\"/at\"] } }"))
            .then(json("{\"order\":1,\"at\":1}"), "200 fresh")
            .then(json("{\"order\":1,\"at\":2}"), "200 replayed")
            .then(json("{\"order\":2,\"at\":1}"), REUSED),
        row(rule("fingerprint = { json = { unordered = [\"/items\"] } }"))
            .then(json("{\"items\":[1,2],\"more\":[1,2]}"), "200 fresh")
            .then(json("{\"items\":[2,1],\"more\":[1,2]}"), "200 replayed")
            .then(json("{\"items\":[1,2],\"more\":[2,1]}"), REUSED),
        row(rule("fingerprint = \"form\""))
            .then(form("a=1&b=%32"), "200 fresh")
            .then(form("b=2&a=1"), "200 replayed")
            .then(form("a=1&b=3"), REUSED),
        row(rule("fingerprint = \"route\""))
            .then(json("{\"a\":1}"), "200 fresh")
            .then(json("{\"a\":2}").at("/orders?page=2"), "200 replayed")
            .then(json("{\"a\":1}").at("/other"), REUSED),
        row(rule("fingerprint = \"none\""))
            .then(json("{\"a\":1}"), "200 fresh")
            .then(json("{\"a\":2}").at("/other"), "200 replayed"),
    ]
}

fn answers() -> Vec<Row> {
    let (fields, many) = (ask("k").told("fields"), ask("k").told("2kib"));
    vec![
        row(rule(""))
            .then(fields.clone(), "200 fresh")
            .then(fields.clone(), "200 replayed")
            .lacks("set-cookie")
            .says("etag: \"e\"")
            .says("x-kept: yes"),
        row(rule("replay = { allow = [\"Set-Cookie\"], deny = [\"ETag\"] }"))
            .then(fields.clone(), "200 fresh")
            .says("etag: \"e\"")
            .then(fields, "200 replayed")
            .says("set-cookie: s=1")
            .says("x-kept: yes")
            .lacks("etag"),
        row(rule("request_body = \"1 KiB\""))
            .then(ask("k").json(&"1".repeat(1_025)), "413 rejected request-too-large")
            .then(ask("k").json(&"1".repeat(1_024)), "200 fresh"),
        row(rule("response_body = \"1 KiB\""))
            .then(many.clone(), "200 fresh")
            .then(many.clone(), "409 rejected outcome-unavailable"),
        row(rule("response_body = \"2 KiB\"")).then(many.clone(), "200 fresh").then(many, "200 replayed"),
    ]
}

/// Each over `[defaults]` that say the opposite, so that what it says is seen, and not what is so anyway.
fn presets() -> Vec<Row> {
    let over = |tables, rule| row(File { tables, rule, ..File::default() });
    let opposite = "[defaults]
        missing = \"optional\"
        ttl = \"2h\"
        unknown_ttl = \"2h\"
        on_duplicate = \"reject\"
        on_in_flight = \"reject\"
        strictness = \"relaxed\"";
    let strict = "[defaults]
        ttl = \"2h\"
        on_duplicate = \"reject\"
        strictness = \"strict\"";
    let told = |status: &str| ask("b").told(status);
    vec![
        over(opposite, "preset = \"payment\"")
            .then(keyless(), "400 rejected key-missing")
            .then(ask("a"), "200 fresh")
            .kept_for(24 * HOUR)
            .then(ask("a"), "200 replayed")
            .then(told("500"), "500 unknown")
            .then(told("200"), "409 unknown outcome-unknown"),
        over(opposite, "preset = \"internal\"")
            .then(keyless(), "200 bypassed")
            .then(ask("a"), "200 fresh")
            .kept_for(300)
            .then(ask("a"), "200 replayed")
            .then(told("500"), "500 unknown")
            .then(told("200"), "409 unknown outcome-unknown"),
        over(strict, "preset = \"callback\"")
            .then(ask("a"), "200 fresh")
            .kept_for(2 * HOUR)
            .then(ask("a"), "200 replayed")
            .then(told("500"), "500 fresh")
            .then(told("404"), "404 fresh")
            .then(told("200"), "200 fresh"),
        // Takeover parks what failed ten times.
        (0..10)
            .fold(over("", "preset = \"callback\""), |row, _| row.then(told("500"), "500 fresh"))
            .then(told("200"), "503 rejected parked"),
    ]
}

impl Look {
    fn at(&self, answer: &Answer) -> Result<(), String> {
        let whole = || format!("{}{}", answer.head, answer.body);
        let time = |name| {
            httpdate::parse_http_date(answer.field(name).unwrap_or_default()).map_err(|e| format!("{name}: {e}"))
        };
        match self {
            Self::Says(what) if !whole().contains(what) => Err(format!("does not say {what}")),
            Self::Lacks(what) if whole().contains(what) => Err(format!("says {what}")),
            Self::KeptFor(seconds) => {
                let left = time("idempotency-expires")?.duration_since(time("date")?).map_err(|e| e.to_string())?;
                let apart = left.abs_diff(Duration::from_secs(*seconds));
                (apart < Duration::from_secs(60)).then_some(()).ok_or_else(|| format!("is kept for {left:?}"))
            }
            _ => Ok(()),
        }
    }
}

#[tokio::test]
async fn what_a_file_says_is_what_a_gateway_does() {
    let mut wrong = Vec::new();
    for row in rows() {
        let File { principal, tables, rule, .. } = row.file;
        let bed = Bed::new(&row.file).await;
        for (n, step) in row.steps.iter().enumerate() {
            let answer = bed.ask(&step.ask).await;
            let mut say = |what: String| wrong.push(format!("{principal} {tables} {rule}, request {n}: {what}"));
            if answer.short() != step.short {
                say(format!("{} instead of {}", answer.short(), step.short));
            }
            step.looks.iter().filter_map(|look| look.at(&answer).err()).for_each(say);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
