use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn digest(text: &str) -> Result<[u8; 32], JsonError> {
    canonical_digest(text.as_bytes())
}

fn same(a: &str, b: &str) {
    assert_eq!(digest(a).unwrap(), digest(b).unwrap(), "{a} {b}");
}

fn differ(a: &str, b: &str) {
    assert_ne!(digest(a).unwrap(), digest(b).unwrap(), "{a} {b}");
}

#[test]
fn numbers_are_exact_decimals() {
    for one in ["1", "1.0", "1.00", "1e0", "10e-1", "0.1E+1", "0.0010e3", "1e-0"] {
        same("1", one);
    }
    for zero in ["0", "-0", "0.000", "0e99", "-0.0e-5", "0e-99"] {
        same("0", zero);
    }
    same("1e400", "10e399");
    same("-1200", "-1.2e3");
    differ("9007199254740993", "9007199254740992");
    differ("0.1", "0.10000000000000000001");
    differ("1", "-1");
    differ("1", "10");
    differ("1e400", "1e401");
    differ("12", "[1,2]");
    assert_eq!(digest("1e99999999999999999999"), Err(JsonError::NumberRange));
    assert_eq!(digest("0.1e-9223372036854775808"), Err(JsonError::NumberRange));
    assert!(digest("1e-9223372036854775808").is_ok());
}

#[test]
fn members_have_no_order_and_arrays_do() {
    same(r#"{"a":1,"b":[{"c":2,"d":3}]}"#, "{ \"b\" : [ { \"d\" : 3 ,\n\"c\":2 } ],\t\"a\":1 }\r\n");
    differ("[1,2]", "[2,1]");
    differ("[[1],2]", "[1,[2]]");
    differ("[1]", "[[1]]");
    differ("[]", "{}");
    differ("[]", "[[]]");
    differ(r#"{"a":1}"#, r#"["a",1]"#);
    differ(r#"{"a":null}"#, "{}");
    differ(r#"{"a":"b"}"#, r#"{"b":"a"}"#);
    differ(r#"{"a":{"b":1},"c":2}"#, r#"{"a":{"b":1,"c":2}}"#);
    differ("[true]", "[false]");
    differ("null", "\"null\"");
    differ("\"1\"", "1");
}

#[test]
fn strings_are_compared_after_their_escapes() {
    same(r#""\u0061\n\/\ud83d\ude00\t\"""#, "\"a\\u000a/😀\\u0009\\u0022\"");
    same(r#"{"\u0061":1}"#, r#"{"a":1}"#);
    differ("\"a\"", "\"a\\u0000\"");
    let long = "x".repeat(200);
    differ(&format!("[\"{long}\"]"), &format!("[\"{long}x\"]"));
    same(&format!("[\"{long}\"]"), &format!("[\"\\u0078{}\"]", &long[1..]));
    for lone in [r#""\ud800""#, r#""\ud800x""#, r#""\udc00""#, r#""\ud800\u0061""#] {
        assert_eq!(digest(lone), Err(JsonError::LoneSurrogate), "{lone}");
    }
}

#[test]
fn a_member_twice_has_no_canonical_form_at_any_depth() {
    for doubled in [r#"{"a":1,"a":1}"#, r#"{"a":1,"b":2,"\u0061":3}"#, r#"[{"x":{"a":1,"a":2}}]"#] {
        assert_eq!(digest(doubled), Err(JsonError::DuplicateMember), "{doubled}");
    }
    let hidden = Json::default().without("/a").unwrap();
    assert_eq!(hidden.digest(br#"{"a":1,"a":2}"#), Err(JsonError::DuplicateMember));
}

#[test]
fn what_is_not_json_is_refused() {
    for bad in [
        "",
        " ",
        "{",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "[1 2]",
        "1 2",
        "01",
        "1.",
        ".5",
        "+1",
        "-",
        "1e",
        "1e+",
        "nul",
        "nulll",
        "\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"a\nb\"",
        "[1}",
        "{\"a\":1]",
        "\u{feff}1",
        "'a'",
        "NaN",
        "[,1]",
        "{,}",
        "]",
    ] {
        assert!(matches!(digest(bad), Err(JsonError::Syntax { .. })), "{bad}");
    }
    assert_eq!(canonical_digest(b"\"\xff\""), Err(JsonError::Syntax { at: 1 }));
}

#[test]
fn depth_is_bounded_and_costs_no_stack() {
    let nest = |n: usize| "[".repeat(n) + &"]".repeat(n);
    assert!(digest(&nest(walk::MAX_DEPTH)).is_ok());
    assert_eq!(digest(&nest(walk::MAX_DEPTH + 1)), Err(JsonError::TooDeep));
    assert_eq!(digest(&"[".repeat(1_000_000)), Err(JsonError::TooDeep));
    assert_eq!(digest(&"{\"a\":".repeat(1_000_000)), Err(JsonError::TooDeep));
}

#[test]
fn chosen_and_excluded_fields_decide_what_counts() {
    let body = |time: u32, amount: u32| {
        format!(
            r#"{{"meta":{{"time":{time},"app":"x"}},"lines":[{{"id":1,"n":{amount},"t":{time}}}],"amount":{amount}}}"#
        )
    };
    let of = |json: &Json, text: &str| json.digest(text.as_bytes()).unwrap();
    let only = Json::default().only("/amount").unwrap();
    assert_eq!(of(&only, &body(1, 5)), of(&only, &body(2, 5)));
    assert_ne!(of(&only, &body(1, 5)), of(&only, &body(1, 6)));
    assert_ne!(of(&only, r#"{"amount":null}"#), of(&only, "{}"));
    let deep = Json::default().only("/lines/*/n").unwrap();
    assert_eq!(of(&deep, &body(1, 5)), of(&deep, &body(2, 5)));
    assert_ne!(of(&deep, &body(1, 5)), of(&deep, &body(1, 6)));
    let without = Json::default().without("/meta/time").unwrap().without("/lines/*/t").unwrap();
    assert_eq!(of(&without, &body(1, 5)), of(&without, &body(2, 5)));
    assert_ne!(of(&without, &body(1, 5)), of(&without, &body(1, 6)));
    let both = Json::default().only("/meta").unwrap().without("/meta/time").unwrap();
    assert_eq!(of(&both, &body(1, 5)), of(&both, &body(2, 6)));
    assert_ne!(of(&both, &body(1, 5)), of(&both, r#"{"meta":{"app":"y"}}"#));
    let escaped = Json::default().without("/a~1b/~0").unwrap();
    assert_eq!(of(&escaped, r#"{"a/b":{"~":1}}"#), of(&escaped, r#"{"a/b":{"~":2}}"#));
    assert!(Json::default().only("amount").is_err());
}

#[test]
fn named_arrays_have_no_order() {
    let json = Json::default().unordered("/tags").unwrap();
    let of = |text: &str| json.digest(text.as_bytes()).unwrap();
    assert_eq!(of(r#"{"tags":["a",{"b":1,"c":2},3]}"#), of(r#"{"tags":[3.0,"a",{"c":2,"b":1}]}"#));
    assert_ne!(of(r#"{"tags":[1,1,2]}"#), of(r#"{"tags":[1,2,2]}"#));
    assert_ne!(of(r#"{"tags":[1,1]}"#), of(r#"{"tags":[1]}"#));
    assert_ne!(of(r#"{"other":[1,2]}"#), of(r#"{"other":[2,1]}"#));
    let root = Json::default().unordered("").unwrap();
    assert_eq!(root.digest(b"[1,2]"), root.digest(b"[2,1]"));
}

#[test]
fn other_parameters_are_another_version() {
    let a = Json::default().only("/a").unwrap();
    let b = Json::default().without("/a").unwrap();
    assert_eq!(Json::default().parameters(), 0);
    assert_ne!(a.parameters(), b.parameters());
    let ab = Json::default().only("/a").unwrap().only("/b").unwrap();
    let ba = Json::default().only("/b").unwrap().only("/a").unwrap();
    assert_eq!(ab.parameters(), ba.parameters());
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        "\\PC{0,40}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 60, 8, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            proptest::collection::btree_map("[a-c\\PC]{0,4}", inner, 0..8)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

/// The same value, spelled otherwise: members in reverse, white space, escapes, exponents.
fn respell(value: &Value, out: &mut String) {
    match value {
        Value::Array(elements) => {
            out.push_str("[ ");
            for (i, element) in elements.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { " ,\n" });
                respell(element, out);
            }
            out.push_str(" ]");
        }
        Value::Object(members) => {
            out.push_str("{\t");
            let members: Vec<_> = members.iter().collect();
            for (i, (name, member)) in members.iter().rev().enumerate() {
                out.push_str(if i == 0 { "" } else { "\r, " });
                respell(&Value::from(name.as_str()), out);
                out.push_str(" : ");
                respell(member, out);
            }
            out.push('}');
        }
        Value::String(text) => {
            out.push('"');
            for unit in text.encode_utf16() {
                out.push_str(&format!("\\u{unit:04X}"));
            }
            out.push('"');
        }
        Value::Number(n) => out.push_str(&format!("{n}.00e+0")),
        Value::Null | Value::Bool(_) => out.push_str(&value.to_string()),
    }
}

proptest! {
    #[test]
    fn every_spelling_of_a_value_has_one_digest(value in values()) {
        let mut other = String::new();
        respell(&value, &mut other);
        prop_assert_eq!(digest(&value.to_string()).unwrap(), digest(&other).unwrap());
    }

    #[test]
    fn unequal_values_have_unequal_digests(a in values(), b in values()) {
        prop_assert_eq!(a == b, digest(&a.to_string()).unwrap() == digest(&b.to_string()).unwrap());
    }

    #[test]
    fn what_we_take_is_what_others_take(text in "[\\[\\]{}:,\"0-9eE.+ntruefals\\\\ -]{0,30}") {
        let ours = digest(&text);
        let theirs = serde_json::from_str::<serde::de::IgnoredAny>(&text);
        match ours {
            Ok(_) => prop_assert!(theirs.is_ok(), "{text}"),
            Err(JsonError::Syntax { .. }) => prop_assert!(theirs.is_err(), "{text}"),
            Err(_) => {}
        }
    }
}
