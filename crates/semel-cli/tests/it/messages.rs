//! What a command says to someone who typed the wrong thing, or whose server is away: once, where, and what to do.

use tempfile::TempDir;

use crate::semel::{Ended, command, run_command};
use crate::through::flat;

async fn semel(args: &[&str]) -> Ended {
    let dir = TempDir::new().expect("a directory");
    let mut command = command(args);
    command.current_dir(dir.path());
    run_command(command).await
}

/// A port that nobody listens on while the value lives: it is taken, and connections to it are refused.
struct Closed(socket2::Socket);

impl Closed {
    fn new() -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port");
        Self(socket)
    }

    fn address(&self) -> String {
        self.0.local_addr().expect("an address").as_socket().expect("an IP address").to_string()
    }
}

#[tokio::test]
async fn an_unreachable_store_is_told_once_with_its_address_and_what_to_do() {
    let closed = Closed::new();
    let at = closed.address();
    let of = |scheme: &str, path: &str| format!("{scheme}://ada:hush@{at}{path}");
    let stores = [
        of("redis", "/0"),
        of("redis+sentinel", "/primary"),
        of("redis+cluster", ""),
        of("postgres", "/semel"),
        of("mysql", "/semel"),
    ];
    for store in stores {
        let ended = semel(&["keys", "list", "--store", &store]).await;
        let said = flat(&ended.err);
        assert_eq!(ended.code, 3, "{ended:?}");
        assert_eq!(said.matches("refused").count(), 1, "the cause, once: {said}");
        assert!(!said.contains("nothing was changed"), "nobody wanted to change anything: {said}");
        assert!(said.contains(&format!("no connection to {}", store.replace("hush", "***"))), "where: {said}");
        assert!(said.contains("start the server, or mend the address"), "what to do: {said}");
        assert!(!said.contains("hush"), "a password was shown: {said}");
    }
}

#[tokio::test]
async fn the_doctor_tells_an_unreachable_store_in_the_same_words() {
    let closed = Closed::new();
    let store = format!("redis://:hush@{}/0", closed.address());
    let ended = semel(&["doctor", "--upstream", "http://127.0.0.1:9", "--store", &store, "--json"]).await;
    let json = ended.json();
    let found = json["findings"].as_array().expect("findings").iter().find(|f| f["about"] == "store").expect("one");
    let what = found["what"].as_str().expect("words");
    assert!(what.starts_with(&format!("no connection to redis://:***@{}/0: ", closed.address())), "{found}");
    assert_eq!(found["fix"], "start the server, or mend the address, its user or its password");
}

#[tokio::test]
async fn migrate_says_which_stores_have_tables_and_what_to_type() {
    let without = semel(&["migrate"]).await;
    assert_eq!(without.code, 2, "{without:?}");
    let said = flat(&without.err);
    assert!(said.starts_with("error: name the database: semel migrate postgres://"), "{said}");
    let redis = semel(&["migrate", "redis://:hush@127.0.0.1:6379"]).await;
    assert_eq!(redis.code, 2, "{redis:?}");
    let said = flat(&redis.err);
    assert!(
        said.contains("redis://:***@127.0.0.1:6379 needs no tables, only PostgreSQL and MySQL do; start the gateway"),
        "{said}"
    );
    let embedded = semel(&["migrate", "embedded:data"]).await;
    assert!(embedded.code == 2 && flat(&embedded.err).contains("embedded:data needs no tables,"), "{embedded:?}");
}

/// It was told to take `--store`, which `migrate` does not have.
#[tokio::test]
async fn migrate_takes_its_database_without_a_flag_and_says_so() {
    let address = "postgres://ada:hush@127.0.0.1/shop";
    for args in [&["migrate", "-c", address][..], &["migrate", "postgres://127.0.0.1/a", address]] {
        let ended = semel(args).await;
        let said = flat(&ended.err);
        assert_eq!(ended.code, 2, "{ended:?}");
        let tip = "the database is named without a flag: semel migrate postgres://ada:***@127.0.0.1/shop";
        assert!(said.contains(tip) && !said.contains("--store") && !said.contains("hush"), "{said}");
    }
    let ended = semel(&["migrate", "-c", "http://127.0.0.1:3000"]).await;
    assert!(flat(&ended.err).contains("is an address and no file: the database is named without a flag"), "{ended:?}");
}

#[tokio::test]
async fn an_address_where_a_file_or_nothing_is_expected_leads_to_its_flag() {
    let files = [&["doctor"][..], &["check"], &["keys", "list", "-c"], &["gateway", "-c"]];
    for command in files {
        let ended = semel(&[command, &["redis://:hush@127.0.0.1"]].concat()).await;
        assert_eq!(ended.code, 2, "{ended:?}");
        let said = flat(&ended.err);
        assert!(said.contains("no file: a store is named with --store redis://:***@127.0.0.1"), "{said}");
        assert!(!said.contains("hush"), "a password was shown: {said}");
        let ended = semel(&[command, &["http://127.0.0.1:3000"]].concat()).await;
        // There is no --upstream to look into a store with.
        let words = match command[0] {
            "keys" => "the records of a gateway are in its store: name that with --store URL",
            _ => "a service is named with --upstream http://127.0.0.1:3000",
        };
        assert!(flat(&ended.err).contains(words), "{ended:?}");
    }
    for args in [&["keys", "list", "redis://:hush@127.0.0.1"][..], &["keys", "redis://:hush@127.0.0.1"]] {
        let ended = semel(args).await;
        assert_eq!(ended.code, 2, "{ended:?}");
        let said = flat(&ended.err);
        assert!(said.contains("a store is named with --store redis://:***@127.0.0.1"), "{said}");
        assert!(!said.contains("hush"), "a password was shown: {said}");
    }
}
