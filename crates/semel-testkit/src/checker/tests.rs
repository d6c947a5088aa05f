//! A checker that cannot fail is worth nothing: each property has a history that breaks it and one that only just does not.

use std::{sync::Arc, time::Duration};

use super::{Call, Collector, Effect, Fences, Last, Promise, Property, Question, Report, Told, check};
use crate::clock::ManualClock;

const STRICT: Promise = Promise::strict(&["store-unavailable"]);

/// A history in the making, about order 7 unless it says otherwise.
struct History(Collector);

fn history() -> History {
    History(Collector::new(Arc::new(ManualClock::new())))
}

fn effect(value: &str, fence: u64) -> Effect {
    Effect { identity: "order-7".into(), question: "tea".into(), value: value.into(), fence: Some(fence), call: None }
}

fn fresh(value: &str) -> Told {
    Told::Fresh(value.into())
}

fn replayed(value: &str) -> Told {
    Told::Replayed(value.into())
}

impl History {
    fn asks(&self) -> Call {
        self.0.asks("worker", "order-7", "tea")
    }

    fn hears(&self, call: Call, told: Told) {
        self.0.tell(call, told, "label");
    }

    /// A call that is told something at once.
    fn call(&self, told: Told) -> Call {
        let call = self.asks();
        self.hears(call, told);
        call
    }

    /// A run that is told of.
    fn run(&self, value: &str, fence: u64) -> Call {
        let call = self.asks();
        self.0.effect(Effect { call: Some(call), ..effect(value, fence) });
        self.hears(call, fresh(value));
        call
    }

    fn report(&self) -> Report {
        check(&self.0, &STRICT)
    }

    /// Exactly one thing is wrong, and the report says which.
    fn is_caught(&self, property: Property, words: &str) {
        self.is_caught_by(&STRICT, property, words);
    }

    fn is_caught_by(&self, promise: &Promise, property: Property, words: &str) {
        let report = check(&self.0, promise);
        let [violation] = &report.violations[..] else { panic!("one thing is wrong: {report}") };
        assert_eq!((violation.property, violation.identity.as_str()), (property, "order-7"), "{report}");
        assert!(violation.words.contains(words), "{words}: {report}");
        assert!(!violation.events.is_empty());
    }

    fn is_clean(&self, promise: &Promise) -> Report {
        let report = check(&self.0, promise);
        assert!(report.violations.is_empty(), "{report}");
        report
    }
}

#[test]
fn a_run_its_replays_and_refusals_are_as_promised() {
    let h = history();
    let waiter = h.asks();
    h.run("a", 1);
    h.hears(waiter, replayed("a"));
    h.call(replayed("a"));
    let other = h.0.asks("worker", "order-7", "coffee");
    h.hears(other, Told::Mismatch);
    let away = h.asks();
    h.0.tell(away, Told::Refused, "store-unavailable");
    h.asks();
    h.0.last("order-7", Last::Done(Some("a".into())));
    h.0.fault("kill");
    let report = h.is_clean(&STRICT);
    assert_eq!((report.calls, report.identities, report.effects, report.unanswered), (6, 1, 1, 1));
    assert_eq!((report.told["label"], report.faults["kill"], report.last["done"]), (4, 1, 1));
    assert_eq!(report.unseen(&["kill", "pause"], &["label", "in-flight"]), ["pause", "in-flight"]);
}

#[test]
fn two_effects_in_one_life_are_caught() {
    let h = history();
    h.run("a", 1);
    h.0.effect(effect("b", 2));
    h.is_caught(Property::OneEffect, "2 effects in one life");
}

#[test]
fn effects_of_two_identities_are_not_taken_for_two_of_one() {
    let h = history();
    h.run("a", 1);
    let call = h.0.asks("worker", "order-8", "tea");
    h.0.effect(Effect { identity: "order-8".into(), ..effect("b", 1) });
    h.hears(call, fresh("b"));
    assert_eq!(h.is_clean(&STRICT).effects, 2);
}

#[test]
fn a_store_that_forgot_allows_one_more_life_and_counts_it() {
    for whom in [None, Some("order-7")] {
        let h = history();
        h.run("a", 1);
        h.0.forgot(whom);
        h.run("b", 2);
        h.call(replayed("b"));
        assert_eq!(h.is_clean(&STRICT).doubles.loss, 1);
        h.0.effect(effect("c", 3));
        h.is_caught(Property::OneEffect, "3 effects, and what was lost (1 times in all) explains 2");
    }
}

/// Its process told of the outcome before it could record it, and stood still; another one claimed what was lost.
#[test]
fn an_outcome_that_was_told_before_it_was_recorded_stands_as_far_as_the_record_did() {
    let h = history();
    let first = h.asks();
    h.0.effect(effect("a", 1));
    h.0.forgot(None);
    h.call(replayed("a"));
    let second = h.asks();
    h.call(Told::Refused);
    h.0.effect(effect("b", 2));
    h.hears(second, fresh("b"));
    h.hears(first, Told::Unclear);
    assert_eq!(h.is_clean(&STRICT).doubles.loss, 1);
}

/// The process whose claim was lost runs on, and answers its copies by that, until it hears of it.
#[test]
fn while_a_run_whose_claim_was_lost_goes_on_its_process_may_say_so() {
    let h = history();
    let first = h.asks();
    h.0.forgot(None);
    h.run("b", 2);
    h.0.effect(Effect { call: Some(first), ..effect("a", 1) });
    h.call(Told::Refused);
    h.hears(first, Told::Unclear);
    let advisory = Promise { fences: Fences::Advisory, ..STRICT };
    assert_eq!(h.is_clean(&advisory).doubles.loss, 1);
    h.call(Told::Refused);
    h.is_caught_by(&advisory, Property::OutcomeStands, "outcome b was known");
}

/// It found that its claim was lost before it did anything. Until then it kept copies out, and other questions.
#[test]
fn a_run_whose_claim_was_lost_may_say_so_also_where_it_never_takes_effect() {
    let h = history();
    let first = h.0.asks("worker", "order-7", "coffee");
    h.0.forgot(None);
    h.run("b", 2);
    h.call(Told::Mismatch);
    h.hears(first, Told::Refused);
    h.is_clean(&STRICT);
    h.call(Told::Mismatch);
    h.is_caught(Property::OutcomeStands, "outcome b was known");
    // One that was told of another's run kept nobody out.
    let h = history();
    let waiter = h.asks();
    h.0.forgot(None);
    h.run("b", 2);
    h.call(Told::Refused);
    h.hears(waiter, replayed("b"));
    h.is_caught(Property::OutcomeStands, "outcome b was known");
}

#[test]
fn a_loss_of_another_identity_or_before_the_first_call_allows_nothing() {
    let h = history();
    h.0.forgot(None);
    h.run("a", 1);
    h.0.forgot(Some("order-8"));
    h.0.effect(effect("b", 2));
    h.is_caught(Property::OneEffect, "2 effects in one life");
}

#[test]
fn takeover_is_counted_where_the_rule_says_so() {
    let h = history();
    h.asks();
    h.0.effect(effect("a", 1));
    h.run("b", 2);
    let promise = Promise { takeover: true, ..STRICT };
    assert_eq!(h.is_clean(&promise).doubles.takeover, 1);
    h.is_caught(Property::OneEffect, "2 effects");
}

#[test]
fn an_unguarded_effect_is_counted_where_the_rule_says_so() {
    let h = history();
    let call = h.asks();
    h.0.effect(Effect { fence: None, ..effect("a", 0) });
    h.hears(call, Told::Unguarded("a".into()));
    h.run("b", 2);
    assert_eq!(h.is_clean(&Promise { open: true, ..STRICT }).doubles.open, 1);
    h.is_caught(Property::OneEffect, "unguarded");
}

#[test]
fn a_run_that_is_told_of_with_the_wrong_word_for_its_guard_is_caught() {
    let open = Promise { open: true, ..STRICT };
    let cases = [(None, Told::Unrecorded("a".into())), (None, fresh("a")), (Some(1), Told::Unguarded("a".into()))];
    for (fence, told) in cases {
        let h = history();
        let call = h.asks();
        h.0.effect(Effect { fence, call: Some(call), ..effect("a", 0) });
        h.hears(call, told);
        h.is_caught_by(&open, Property::GuardIsTold, "came with fence");
    }
}

#[test]
fn what_is_told_in_trouble_alone_is_caught_without_any() {
    let clock = Arc::new(ManualClock::new());
    let patience = Duration::from_millis(400);
    let promise = Promise { in_trouble: &["in-flight"], patience, ..STRICT };
    let begun = || {
        let h = History(Collector::new(clock.clone()));
        h.run("a", 1);
        h.0.begins("before");
        h.0.ends("before");
        h
    };
    let in_flight = |h: &History, call| h.0.tell(call, Told::Refused, "in-flight");
    let h = begun();
    in_flight(&h, h.asks());
    h.0.begins("after");
    h.is_caught_by(&promise, Property::OutcomeStands, "in-flight");
    // While a fault is on, from its beginning to its end.
    let h = begun();
    h.0.begins("cut");
    in_flight(&h, h.asks());
    h.0.ends("cut");
    h.is_clean(&promise);
    let h = begun();
    let call = h.asks();
    h.0.begins("one that never ends");
    in_flight(&h, call);
    h.is_clean(&promise);
    // Or for as long as it lingers.
    let lingering = Promise { lingers: patience, ..promise };
    let h = begun();
    in_flight(&h, h.asks());
    h.is_clean(&lingering);
    clock.advance(patience);
    in_flight(&h, h.asks());
    h.is_caught_by(&lingering, Property::OutcomeStands, "in-flight");
    // Beside a copy to which the store did not answer; one before that explains nothing.
    let h = begun();
    let (call, other) = (h.asks(), h.asks());
    in_flight(&h, call);
    h.0.tell(other, Told::Refused, "store-unavailable");
    h.is_clean(&promise);
    in_flight(&h, h.asks());
    h.is_caught_by(&promise, Property::OutcomeStands, "in-flight");
    // After a wait.
    let h = begun();
    let call = h.asks();
    clock.advance(patience);
    in_flight(&h, call);
    h.is_clean(&promise);
}

#[test]
fn an_outcome_without_an_effect_is_caught() {
    for told in [fresh("a"), replayed("a"), Told::Unrecorded("a".into())] {
        let h = history();
        h.call(told);
        h.is_caught(Property::EffectBehindSuccess, "no such effect");
    }
}

#[test]
fn a_run_that_was_anothers_is_caught() {
    let h = history();
    let (one, two) = (h.asks(), h.asks());
    h.0.effect(Effect { call: Some(one), ..effect("a", 1) });
    h.hears(two, fresh("a"));
    h.is_caught(Property::EffectBehindSuccess, "is that of call 1");
}

#[test]
fn a_refused_call_that_ran_is_caught() {
    let h = history();
    let (one, _lost) = (h.asks(), h.asks());
    h.0.effect(Effect { call: Some(one), ..effect("a", 1) });
    h.hears(one, Told::Refused);
    h.is_caught(Property::NothingBehindFailure, "effect a was its own");
}

#[test]
fn an_effect_when_all_were_refused_is_caught_and_one_that_is_unclear_explains_it() {
    let h = history();
    h.call(Told::Refused);
    h.0.effect(effect("a", 1));
    h.is_caught(Property::NothingBehindFailure, "every caller");
    h.call(Told::Unclear);
    h.is_clean(&STRICT);
}

#[test]
fn different_answers_are_caught() {
    let h = history();
    let (one, two) = (h.asks(), h.asks());
    h.0.effect(effect("a", 1));
    h.0.effect(effect("b", 2));
    h.hears(one, fresh("a"));
    h.hears(two, fresh("b"));
    h.is_caught_by(&Promise { takeover: true, ..STRICT }, Property::EqualAnswers, "different outcomes");
}

#[test]
fn an_answer_to_another_question_is_caught() {
    let h = history();
    h.run("a", 1);
    let other = h.0.asks("worker", "order-7", "coffee");
    h.hears(other, replayed("a"));
    h.is_caught(Property::OwnQuestion, "asked coffee");
}

#[test]
fn a_mismatch_where_all_asked_the_same_is_caught() {
    let h = history();
    let early = h.asks();
    h.run("a", 1);
    h.hears(early, Told::Mismatch);
    h.is_caught(Property::OwnQuestion, "all asked the same");
}

/// A question with somebody's credentials.
fn tea_of(by: &str) -> Question {
    Question::from("tea").of(by)
}

#[test]
fn a_stranger_is_told_so_and_nobody_else_is() {
    let h = history();
    let (own, stranger) = (h.0.asks("worker", "order-7", tea_of("ann")), h.0.asks("worker", "order-7", tea_of("bob")));
    h.0.effect(Effect { question: tea_of("ann"), call: Some(own), ..effect("a", 1) });
    h.hears(own, fresh("a"));
    h.hears(stranger, Told::Stranger);
    h.hears(h.0.asks("worker", "order-7", tea_of("bob")), Told::Stranger);
    h.is_clean(&STRICT);
    h.hears(h.0.asks("worker", "order-7", tea_of("ann")), Told::Stranger);
    h.is_caught(Property::OutcomeStands, "outcome a was known");

    let h = history();
    h.run("a", 1);
    let early = h.asks();
    h.hears(early, Told::Stranger);
    let report = h.report();
    let words: Vec<_> = report.violations.iter().map(|v| (v.property, v.words.as_str())).collect();
    assert!(
        matches!(&words[..], [(Property::OwnQuestion, who), (Property::OutcomeStands, _)] if who.contains("nobody else asked")),
        "{report}"
    );
}

#[test]
fn anothers_outcome_told_to_a_stranger_is_caught() {
    let h = history();
    let own = h.0.asks("worker", "order-7", tea_of("ann"));
    h.0.effect(Effect { question: tea_of("ann"), call: Some(own), ..effect("a", 1) });
    h.hears(own, fresh("a"));
    let stranger = h.0.asks("worker", "order-7", tea_of("bob"));
    h.hears(stranger, replayed("a"));
    h.is_caught(Property::OwnQuestion, "asked tea as bob and got the answer to tea as ann");
    // Nor is it told that what it asked for was done.
    h.hears(stranger, Told::Done);
    let gone = Promise { after_success: &["label"], ..STRICT };
    h.is_caught_by(&gone, Property::OwnQuestion, "asked tea as bob and was told that it was done, as another was");
}

#[test]
fn a_body_that_is_gone_is_told_of_where_that_is_allowed_and_something_was_done() {
    let gone = Promise { after_success: &["label"], ..STRICT };
    let h = history();
    h.run("a", 1);
    h.call(Told::Done);
    h.0.last("order-7", Last::Done(None));
    h.is_clean(&gone);
    h.is_caught(Property::OutcomeStands, "it was told that it was done");
    // Nothing had been done, not yet, or something else.
    let h = history();
    h.call(Told::Done);
    h.is_caught_by(&gone, Property::EffectBehindSuccess, "was told that it was done, and nothing had been");
    h.run("a", 1);
    h.is_caught_by(&gone, Property::EffectBehindSuccess, "was told that it was done, and nothing had been");
    let h = history();
    h.run("a", 1);
    let other = h.0.asks("worker", "order-7", "coffee");
    h.hears(other, Told::Done);
    h.is_caught_by(&gone, Property::OwnQuestion, "asked coffee and was told that it was done");
    h.is_clean(&Promise { unread: true, ..gone });
}

#[test]
fn one_who_was_told_that_it_was_done_and_ran_is_caught() {
    for told in [Told::Done, Told::Stranger, Told::NoToken] {
        let h = history();
        let _others = [h.0.asks("worker", "order-7", tea_of("bob")), h.asks()];
        let one = h.asks();
        h.0.effect(Effect { call: Some(one), ..effect("a", 1) });
        h.hears(one, told);
        h.is_caught(Property::NothingBehindFailure, "effect a was its own");
    }
}

#[test]
fn a_store_without_room_is_believed_before_an_outcome_and_not_after_it() {
    let h = history();
    let full = |h: &History| h.0.tell(h.asks(), Told::Refused, "store-full");
    full(&h);
    h.run("a", 1);
    h.is_clean(&STRICT);
    full(&h);
    h.is_caught(Property::OutcomeStands, "store-full");
}

#[test]
fn a_token_that_stands_is_not_denied() {
    let clock = Arc::new(ManualClock::new());
    let holds = Duration::from_secs(5);
    let tokens = Promise { tokens: true, ..STRICT };
    let issued = || {
        let h = History(Collector::new(clock.clone()));
        h.0.issued("order-7", holds);
        h
    };
    let h = issued();
    h.call(Told::NoToken);
    h.is_caught_by(&tokens, Property::Tokens, "there was one");
    // It was over, lost, or not there when that was asked.
    let h = issued();
    let call = h.asks();
    clock.advance(holds);
    h.hears(call, Told::NoToken);
    h.is_clean(&tokens);
    let h = issued();
    h.0.forgot(None);
    h.call(Told::NoToken);
    h.is_clean(&tokens);
    let h = history();
    let call = h.asks();
    h.0.issued("order-7", holds);
    h.hears(call, Told::NoToken);
    h.is_clean(&tokens);
    // What was made with it does not end when it would have.
    let h = issued();
    h.run("a", 1);
    clock.advance(holds);
    h.call(Told::NoToken);
    h.is_caught_by(&tokens, Property::OutcomeStands, "that there is no token");
}

#[test]
fn what_ran_without_a_token_is_caught() {
    let tokens = Promise { tokens: true, ..STRICT };
    let holds = Duration::from_secs(5);
    let h = history();
    h.run("a", 1);
    h.is_clean(&STRICT);
    h.0.issued("order-7", holds);
    h.is_caught_by(&tokens, Property::Tokens, "effect a took place without a token");
    // One that was lost before anybody asked allows nothing; the next one does.
    let h = history();
    h.0.issued("order-7", holds);
    h.0.forgot(None);
    h.run("a", 1);
    h.is_caught_by(&tokens, Property::Tokens, "effect a took place without a token");
    let h = history();
    h.0.issued("order-7", holds);
    h.0.forgot(None);
    h.0.issued("order-7", holds);
    h.run("a", 1);
    h.is_clean(&tokens);
}

#[test]
fn an_outcome_that_is_taken_back_is_caught() {
    for told in [Told::Refused, Told::Unclear] {
        let h = history();
        let early = h.asks();
        h.run("a", 1);
        h.call(told);
        h.is_caught(Property::OutcomeStands, "outcome a was known");
        // One that had asked before may be told anything.
        h.hears(early, Told::Unclear);
        h.is_caught(Property::OutcomeStands, "outcome a was known");
    }
}

#[test]
fn an_outcome_that_the_store_forgot_need_not_stand() {
    let h = history();
    h.run("a", 1);
    let call = h.asks();
    h.0.forgot(None);
    h.hears(call, Told::Unclear);
    h.is_clean(&STRICT);
}

/// The count of effects alone excused a double that came before any loss.
#[test]
fn a_double_before_a_loss_is_not_excused_by_it() {
    let lose: [fn(&Collector); 2] = [|c| c.forgot(None), |c| c.over(c.forgets(None))];
    for lose in lose {
        let h = history();
        let (one, two) = (h.asks(), h.asks());
        h.0.effect(Effect { call: Some(one), ..effect("a", 1) });
        h.0.effect(Effect { call: Some(two), ..effect("b", 2) });
        lose(&h.0);
        h.is_caught(Property::OneEffect, "2 effects, and what was lost (1 times in all) explains 1");
        // Nor is a double after it.
        let h = history();
        h.asks();
        lose(&h.0);
        for value in ["a", "b"] {
            let call = h.asks();
            h.0.effect(Effect { call: Some(call), ..effect(value, 1) });
        }
        h.is_caught(Property::OneEffect, "explains 1");
    }
}

/// The claim of an effect may have been granted, and lost, before the effect took place.
#[test]
fn two_at_once_are_excused_by_a_loss_that_can_have_been_between_their_claims() {
    let h = history();
    let (one, two) = (h.asks(), h.asks());
    h.0.forgot(None);
    h.0.effect(Effect { call: Some(one), ..effect("a", 1) });
    h.0.effect(Effect { call: Some(two), ..effect("b", 2) });
    assert_eq!(h.is_clean(&STRICT).doubles.loss, 1);
    let three = h.asks();
    h.0.effect(Effect { call: Some(three), ..effect("c", 3) });
    h.is_caught(Property::OneEffect, "3 effects");
}

#[test]
fn a_loss_that_could_happen_at_any_time_counts_from_its_beginning_and_once() {
    let h = history();
    let mut loss = h.0.forgets(None);
    h.run("a", 1);
    h.run("b", 2);
    // It lasts as long as nobody says that it is over.
    h.is_clean(&STRICT);
    h.0.gone(&mut loss, 1);
    h.0.over(loss);
    assert_eq!(h.is_clean(&STRICT).doubles.loss, 1);
    h.0.effect(effect("c", 3));
    h.is_caught(Property::OneEffect, "3 effects");
}

#[test]
fn a_loss_that_happened_twice_begins_two_lives() {
    let h = history();
    let mut loss = h.0.forgets(None);
    for value in ["a", "b", "c"] {
        h.run(value, 1);
    }
    h.0.gone(&mut loss, 2);
    h.0.over(loss);
    assert_eq!(h.is_clean(&Promise { fences: Fences::Advisory, ..STRICT }).doubles.loss, 2);
}

/// What a process remembers of before may still be told then; what runs then has no excuse any more.
#[test]
fn once_all_is_gone_a_loss_excuses_answers_and_no_effects() {
    let h = history();
    h.run("a", 1);
    let mut loss = h.0.forgets(None);
    h.0.gone(&mut loss, 1);
    h.run("b", 2);
    h.call(replayed("a"));
    h.0.over(loss);
    h.is_clean(&STRICT);
    let h = history();
    h.asks();
    let mut loss = h.0.forgets(None);
    h.0.gone(&mut loss, 1);
    h.run("a", 1);
    h.run("b", 2);
    h.0.over(loss);
    h.is_caught(Property::OneEffect, "2 effects");
}

#[test]
fn a_fence_that_does_not_rise_is_caught_or_counted() {
    for second in [1, 2] {
        let h = history();
        h.asks();
        h.0.effect(effect("a", 2));
        h.0.effect(effect("b", second));
        let promise = Promise { takeover: true, ..STRICT };
        h.is_caught_by(&promise, Property::RisingFences, "effect b");
        let advisory = Promise { fences: Fences::Advisory, ..promise };
        assert_eq!(h.is_clean(&advisory).fence_repeats, 1);
    }
}

#[test]
fn what_is_left_in_flight_is_caught() {
    let h = history();
    h.asks();
    h.0.last("order-7", Last::InFlight);
    h.is_caught(Property::Terminal, "still in flight");
    h.is_clean(&Promise { in_flight_at_the_end: true, ..STRICT });
}

#[test]
fn a_record_that_says_otherwise_is_caught() {
    for (last, words) in [
        (Last::Unknown, "callers were told a, and at the end the store has Unknown"),
        (Last::Parked, "callers were told a"),
        (Last::Nothing, "would let the next one run"),
        (Last::Done(Some("b".into())), "no such effect"),
    ] {
        let h = history();
        h.run("a", 1);
        h.0.last("order-7", last);
        h.is_caught(Property::RecordAgrees, words);
    }
    let h = history();
    h.run("a", 1);
    h.0.last("order-7", Last::Done(None));
    h.is_clean(&STRICT);
    // A claim that took over and was released leaves it free: that is what takeover says.
    let h = history();
    h.asks();
    h.0.effect(effect("a", 1));
    h.0.last("order-7", Last::Nothing);
    h.is_clean(&Promise { takeover: true, ..STRICT });
}

#[test]
fn an_effect_that_nobody_asked_for_is_caught() {
    let h = history();
    h.0.effect(effect("a", 1));
    h.is_caught(Property::Asked, "nobody asked about");
    let h = history();
    h.asks();
    h.0.effect(Effect { question: "coffee".into(), ..effect("a", 1) });
    h.is_caught(Property::Asked, "coffee");
}

#[test]
fn a_report_says_in_words_who_and_what() {
    let h = history();
    h.run("a", 1);
    h.0.effect(effect("b", 2));
    let said = h.report().to_string();
    for words in
        ["order-7 (OneEffect): 2 effects", "call 1: worker asks tea", "EFFECT b of tea, fence 2", "1 violations"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
}
