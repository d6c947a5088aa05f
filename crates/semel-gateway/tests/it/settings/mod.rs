//! Every setting of a rule, and what else of the file reaches the guard: given in a file, seen from outside of a gateway that runs.
//!
//! The file's own tests (`config`) show that a setting is read, those of `semel-http` and `semel-core` that it does what it says.
//! What stands between, `wiring`, is shown here: a setting that is dropped there, or given to another's place, fails one of these.

mod bed;
mod rows;
mod under_way;

use semel_gateway::config::{Config, Flags, Source};

/// Settings of a rule that need more than one gateway and one service, and the tests that show them.
const ELSEWHERE: [(&str, &str); 1] = [("on_store_error", "semel-cli, tests/it/chaos/fates.rs")];

#[test]
fn every_setting_of_a_rule_is_seen_in_a_running_gateway() {
    let file = Source::new("semel.toml", "[upstream.shop]\nurls = [\"http://127.0.0.1:1\"]");
    let config = Config::from_parts(Some(file), &Flags::default()).expect("a file");
    let rule = config.rules.get(0).expect("the built-in rule");
    for line in rule.policy.lines() {
        let key = line.key;
        let given = |text: &str| text.contains(&format!("{key} = "));
        let seen = rows::rows().iter().any(|row| given(row.file.rule)) || given(under_way::TEXT);
        let elsewhere = ELSEWHERE.iter().any(|(name, _)| *name == key);
        assert!(
            seen != elsewhere,
            "`{key}`: a row in rows.rs or a test in under_way.rs gives it in a file, or ELSEWHERE names one"
        );
    }
}
