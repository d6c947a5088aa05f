//! What a command says to someone who typed the wrong thing, or whose server is away: once, where, and what to do.

use semel_testkit::servers::redis::{Redis, Setup};
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
async fn a_server_that_answers_is_not_to_be_started() {
    let redis = Redis::start(&Setup::new()).await;
    let wrong = format!("redis://ada:hush@{}/0", redis.address());
    let tls = format!("rediss://{}/0", redis.address());
    for (store, cure) in [(wrong, "mend the user or the password"), (tls, "does this port speak TLS?")] {
        let ended = semel(&["keys", "list", "--store", &store]).await;
        let said = flat(&ended.err);
        assert_eq!(ended.code, 3, "{ended:?}");
        assert!(said.contains(cure) && !said.contains("start the server"), "{said}");
    }
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

#[tokio::test]
async fn examples_of_the_help_can_be_copied_from_a_narrow_terminal() {
    for name in ["demo", "gateway", "prove", "check", "doctor", "migrate", "keys"] {
        let mut help = Vec::new();
        for columns in ["60", "300"] {
            let mut command = command(&[name, "--help"]);
            command.env("COLUMNS", columns);
            help.push(run_command(command).await.out);
        }
        let examples = |help: &str| -> Vec<String> {
            let after = help.split_once("Examples:\n").map(|(_, after)| after.to_owned()).unwrap_or_default();
            after.lines().take_while(|line| line.starts_with("  ")).map(str::to_owned).collect()
        };
        assert_eq!(examples(&help[0]), examples(&help[1]), "{name}");
        assert!(name == "demo" || examples(&help[0]).len() >= 3, "{name}: {}", help[0]);
    }
}

#[tokio::test]
async fn an_empty_variable_is_one_that_is_not_set() {
    for name in
        ["SEMEL_UPSTREAM", "SEMEL_LISTEN", "SEMEL_CONFIG", "SEMEL_STORE", "SEMEL_SECRET_FILE", "SEMEL_CHECK_JSON"]
    {
        let mut check = command(&["check"]);
        if name != "SEMEL_UPSTREAM" {
            check.env("SEMEL_UPSTREAM", "http://127.0.0.1:3000");
        }
        let dir = TempDir::new().expect("a directory");
        check.env(name, "").current_dir(dir.path());
        let ended = run_command(check).await;
        match name {
            "SEMEL_UPSTREAM" => assert!(ended.out.contains("no upstream: there is nothing to put"), "{ended:?}"),
            _ => assert!(ended.code == 0 && ended.out.ends_with("nothing to object to.\n"), "{name}: {ended:?}"),
        }
    }
    // Whoever types it means it.
    let ended = semel(&["check", "--upstream", ""]).await;
    assert!(ended.code == 1 && ended.out.contains("--upstream or SEMEL_UPSTREAM: error:"), "{ended:?}");
}

#[tokio::test]
async fn a_flag_that_is_wrong_leaves_the_file_right() {
    let dir = TempDir::new().expect("a directory");
    let text = "[upstream.shop]\nurls = [\"http://127.0.0.1:3000\"]\ncolour = 1\n";
    std::fs::write(dir.path().join("semel.toml"), text).expect("a file");
    let mut gateway = command(&["gateway", "--upstream", "foo", "-c", "semel.toml"]);
    gateway.current_dir(dir.path());
    let ended = run_command(gateway).await;
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(ended.err.contains("--upstream or SEMEL_UPSTREAM: error: "), "{ended:?}");
    assert!(!ended.err.contains("unknown key `upstream`"), "{ended:?}");
    assert!(ended.err.contains("unknown key `upstream.shop.colour`"), "what is wrong there as well: {ended:?}");
    assert_eq!(ended.err.matches(" error: ").count(), 2, "{ended:?}");
}

/// A directory with a file that nobody has to name.
fn with_file() -> TempDir {
    let dir = TempDir::new().expect("a directory");
    let text = "[upstream.shop]\nurls = [\"http://127.0.0.1:9\"]\n[store]\nurl = \"memory\"\n";
    std::fs::write(dir.path().join("semel.toml"), text).expect("a file");
    dir
}

#[tokio::test]
async fn check_and_doctor_take_the_file_as_the_gateway_does() {
    let dir = with_file();
    std::fs::rename(dir.path().join("semel.toml"), dir.path().join("other.toml")).expect("it is there");
    for name in ["check", "doctor"] {
        let run = async |args: &[&str], variable: &str| {
            let mut command = command(&[&[name], args].concat());
            command.current_dir(dir.path()).env("SEMEL_CONFIG", variable);
            run_command(command).await
        };
        let wanted = run(&["other.toml"], "").await;
        assert!(wanted.out.contains("upstream") && wanted.err.is_empty(), "{wanted:?}");
        for (args, variable) in
            [(&["-c", "other.toml"][..], ""), (&["--config", "other.toml"], "nowhere.toml"), (&[], "other.toml")]
        {
            let ended = run(args, variable).await;
            assert_eq!((ended.code, ended.err), (wanted.code, String::new()), "{name} {args:?}");
        }
        let both = run(&["other.toml", "-c", "other.toml"], "").await;
        assert!(both.code == 2 && both.err.contains("cannot be used with"), "{both:?}");
    }
}

#[tokio::test]
async fn a_file_that_nobody_named_is_told_to_people() {
    let dir = with_file();
    let told = [&["check"][..], &["doctor"], &["keys", "list"], &["migrate"]];
    let untold =
        [&["check", "--json"][..], &["doctor", "--json"], &["keys", "list", "--json"], &["check", "semel.toml"]];
    for (commands, begins) in [(&told, true), (&untold, false)] {
        for args in commands {
            let mut command = command(args);
            command.current_dir(dir.path());
            let ended = run_command(command).await;
            assert_eq!(ended.err.starts_with("file: ./semel.toml\n"), begins, "{args:?}: {ended:?}");
        }
    }
}
