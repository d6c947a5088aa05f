//! Bad files and their exact messages: the table is `bad_files.txt`.

use semel_gateway::config::{Config, Flags};

use super::{RULE, refusal};

struct Case {
    file: String,
    says: String,
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut answer = false;
    for line in include_str!("bad_files.txt").lines() {
        match line {
            "# file" | "# rule" => {
                answer = false;
                let begin = if line == "# rule" { RULE } else { "" };
                cases.push(Case { file: begin.to_owned(), says: String::new() });
            }
            "# says" => answer = true,
            _ => {
                // What stands before the first case says what the table is.
                let Some(case) = cases.last_mut() else { continue };
                let text = if answer { &mut case.says } else { &mut case.file };
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    cases
}

#[test]
fn every_bad_file_gets_its_words() {
    let cases = cases();
    assert!(cases.len() > 90, "the table was not read: {}", cases.len());
    for case in cases {
        assert_eq!(refusal(&case.file).trim_end(), case.says.trim_end(), "\n{}", case.file);
    }
}

#[test]
fn all_problems_of_a_file_are_told_at_once_and_in_order() {
    let text = format!(
        "{RULE}ttl = 5\nlease = \"1h\"\nmissing = \"maybe\"\n[listen]\nadmin = \"0.0.0.0:1\"\nport = 3\n[store]\nurl = \"redis:x\""
    );
    let firsts: Vec<String> =
        refusal(&text).lines().filter(|l| l.starts_with("semel.toml:")).map(str::to_owned).collect();
    assert_eq!(
        firsts,
        [
            "semel.toml:8:7: error: `rule.ttl` wants a time with its unit, found a whole number",
            "semel.toml:9:9: error: rule `submit`: `lease` (1h) is longer than `max_hold` (10min)",
            "semel.toml:10:11: error: `rule.missing` has no choice `maybe`",
            "semel.toml:12:9: error: the admin address 0.0.0.0:1 can be reached from other machines",
            "semel.toml:13:1: error: unknown key `listen.port`",
            "semel.toml:15:7: error: `store.url` names no host",
        ]
    );
}

#[test]
fn a_bad_flag_is_told_by_its_name() {
    let flags = Flags {
        upstream: Some("localhost:3000".to_owned()),
        listen: Some("8080".to_owned()),
        admin: Some("0.0.0.0:9090".to_owned()),
        store: Some("memory".to_owned()),
        data_dir: Some("x".to_owned()),
        secret_file: None,
        runtime: Some("per-core".to_owned()),
        log_level: Some("loud".to_owned()),
        log_format: None,
    };
    let Err(refused) = Config::from_parts(None, &flags) else { panic!("accepted") };
    assert_eq!(
        refused.to_string(),
        "\
--listen or SEMEL_LISTEN: error: the value is no address: `8080`
  fix: an IP address and a port, like \"127.0.0.1:8080\" or \"[::1]:8080\"

--admin or SEMEL_ADMIN: error: the admin address 0.0.0.0:9090 can be reached from other machines
  why: it has no token and no mTLS in this version: whoever reaches it reads the metrics of every rule
  fix: use 127.0.0.1:9090 and let an agent on this machine, or a proxy with authentication, forward it

--upstream or SEMEL_UPSTREAM: error: the value has no scheme: `localhost:3000`
  fix: write it like \"http://127.0.0.1:3000\"

--data-dir or SEMEL_DATA_DIR: error: the memory store has no directory
  fix: leave --data-dir out, or take --store embedded

--runtime or SEMEL_RUNTIME: error: the value has no choice `per-core`
  fix: did you mean \"per_core\"? Choices: \"per_core\", \"shared\"

--log-level or SEMEL_LOG_LEVEL: error: the value has no choice `loud`
  fix: choices: \"error\", \"warn\", \"info\", \"debug\", \"trace\"
"
    );
}
