//! A history held against a promise, one identity at a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    history::{Call, Collector, Effect, Event, Last, Question, Told, What},
    lives::{Grant, Span, most},
    promise::{Fences, Promise},
    report::{Property, Report, Violation},
};

/// Holds what a collector has heard against a promise. Cost: linear in the number of events.
#[must_use]
pub fn check(collector: &Collector, promise: &Promise) -> Report {
    let events = collector.events();
    let mut report = Report::default();
    let mut of_call = BTreeMap::new();
    let mut stories: BTreeMap<&str, Story<'_>> = BTreeMap::new();
    let mut all_forgotten = Vec::new();
    let mut trouble = Trouble::default();
    for (place, event) in events.iter().enumerate() {
        let identity = match &event.what {
            What::Asks { call, identity, .. } => {
                of_call.insert(*call, identity.as_str());
                identity
            }
            What::Told { call, label, .. } => {
                *report.told.entry(label.clone()).or_default() += 1;
                of_call[call]
            }
            What::Effect(effect) => &effect.identity,
            What::Forgets { identity: Some(identity) }
            | What::Forgot { identity: Some(identity), .. }
            | What::Issued { identity, .. }
            | What::Last { identity, .. } => identity,
            What::Forgets { identity: None } | What::Forgot { identity: None, .. } => {
                all_forgotten.push((place, event));
                continue;
            }
            What::Fault(name) => {
                *report.faults.entry(name.clone()).or_default() += 1;
                continue;
            }
            What::Trouble { begins, .. } => {
                trouble.hear(place, event.at, *begins);
                continue;
            }
        };
        stories.entry(identity).or_insert_with(|| Story::new(identity)).hear(place, event);
    }
    for story in stories.values_mut() {
        story.forget(&all_forgotten);
        story.is_open = promise.open;
        story.check(promise, &trouble, &mut report);
    }
    report
}

/// From when to when a fault was on: places of its beginning and its end, and the time of its end.
#[derive(Default)]
struct Trouble {
    spans: Vec<(usize, usize, Duration)>,
    since: Option<usize>,
}

impl Trouble {
    fn hear(&mut self, place: usize, at: Duration, begins: bool) {
        match self.since.take() {
            None if begins => self.since = Some(place),
            // One within another: the outer one counts.
            Some(since) if begins => self.since = Some(since),
            Some(since) => self.spans.push((since, place, at)),
            None => {}
        }
    }

    /// Whether one was on, or over for less than `lingers`, while a call that was made at a time waited for its answer.
    fn is_felt(&self, (from, asked): (usize, Duration), to: usize, lingers: Duration) -> bool {
        let ended_after = |(since, until, at): &(usize, usize, Duration)| {
            *since < to && (from < *until || asked < at.saturating_add(lingers))
        };
        self.since.is_some_and(|since| since < to) || self.spans.iter().any(ended_after)
    }
}

/// A call and what came of it.
struct Visit<'a> {
    asked_at: usize,
    question: &'a Question,
    told: Option<(usize, &'a Told, &'a str)>,
}

/// A loss: what it took was gone by `gone`, and told by nobody from `until` on.
#[derive(Clone, Copy)]
struct Loss {
    gone: usize,
    until: usize,
    times: usize,
}

/// All that was heard of one identity.
struct Story<'a> {
    identity: &'a str,
    events: Vec<(usize, &'a Event)>,
    visits: BTreeMap<Call, Visit<'a>>,
    /// With where they were reported.
    effects: Vec<(usize, &'a Effect)>,
    /// Tokens that were issued: where, and the time until which they stand.
    tokens: Vec<(usize, Duration)>,
    /// By where each loss began.
    losses: BTreeMap<usize, Loss>,
    /// Whatever the store did not see may have run: nothing is promised of the identity as a whole.
    is_open: bool,
    last: Option<&'a Last>,
}

impl<'a> Story<'a> {
    const fn new(identity: &'a str) -> Self {
        Self {
            identity,
            events: Vec::new(),
            visits: BTreeMap::new(),
            effects: Vec::new(),
            tokens: Vec::new(),
            losses: BTreeMap::new(),
            is_open: false,
            last: None,
        }
    }

    fn hear(&mut self, place: usize, event: &'a Event) {
        self.events.push((place, event));
        match &event.what {
            What::Asks { call, question, .. } => {
                self.visits.insert(*call, Visit { asked_at: place, question, told: None });
            }
            What::Told { call, told, label } => {
                if let Some(visit) = self.visits.get_mut(call) {
                    visit.told = Some((place, told, label));
                }
            }
            What::Effect(effect) => self.effects.push((place, effect)),
            What::Issued { until, .. } => self.tokens.push((place, *until)),
            What::Forgets { .. } | What::Forgot { .. } => self.hear_of_a_loss(place, &event.what),
            What::Last { last, .. } => self.last = Some(last),
            What::Fault(_) | What::Trouble { .. } => {}
        }
    }

    fn hear_of_a_loss(&mut self, place: usize, what: &What) {
        let (since, loss) = match *what {
            What::Forgot { since, gone, times, .. } => (since, Loss { gone, until: place, times }),
            _ => (place, Loss { gone: usize::MAX, until: usize::MAX, times: 1 }),
        };
        self.losses.insert(since, loss);
    }

    /// Losses before anything was asked take nothing away.
    fn forget(&mut self, all: &[(usize, &'a Event)]) {
        let first = self.events.first().map_or(usize::MAX, |(place, _)| *place);
        for (place, event) in all {
            self.hear_of_a_loss(*place, &event.what);
            self.events.push((*place, event));
        }
        self.losses.retain(|_, loss| loss.until > first);
        self.events.retain(|(place, _)| *place >= first);
        self.events.sort_by_key(|(place, _)| *place);
    }

    fn lives(&self) -> usize {
        1 + self.losses.values().map(|loss| loss.times).sum::<usize>()
    }

    fn guarded(&self) -> impl Iterator<Item = &(usize, &'a Effect)> {
        self.effects.iter().filter(|(_, effect)| effect.fence.is_some())
    }

    /// Where an effect was asked for, at the earliest.
    fn asked_for(&self, effect: &Effect) -> usize {
        let first = || self.visits.values().map(|visit| visit.asked_at).min().unwrap_or(0);
        effect.call.and_then(|call| self.visits.get(&call)).map_or_else(first, |visit| visit.asked_at)
    }

    /// How many of the guarded effects each have a life of their own, by what was lost between them.
    fn explained(&self) -> usize {
        let grants: Vec<_> =
            self.guarded().map(|(place, effect)| Grant::within(self.asked_for(effect), *place)).collect();
        let span = |(since, loss): (&usize, &Loss)| vec![Span { since: *since, gone: loss.gone }; loss.times];
        most(&grants, &self.losses.iter().flat_map(span).collect::<Vec<_>>())
    }

    /// Whether what is known of it stands.
    fn is_whole(&self) -> bool {
        !self.is_open && self.losses.is_empty()
    }

    fn is_forgotten_between(&self, from: usize, to: usize) -> bool {
        self.is_open || self.losses.iter().any(|(since, loss)| *since < to && from <= loss.until)
    }

    fn wrong(&self, report: &mut Report, property: Property, words: String) {
        let events = self.events.iter().map(|(_, event)| event.to_string()).collect();
        report.violations.push(Violation { property, identity: self.identity.to_owned(), words, events });
    }

    fn check(&self, promise: &Promise, trouble: &Trouble, report: &mut Report) {
        report.identities += 1;
        report.calls += self.visits.len() as u64;
        report.unanswered += self.visits.values().filter(|v| v.told.is_none()).count() as u64;
        report.effects += self.effects.len() as u64;
        self.effects_are_as_many_as_lives(promise, report);
        self.fences_rise(promise, report);
        self.only_what_was_asked_happened(report);
        if promise.tokens {
            self.all_had_a_token(report);
        }
        for (call, visit) in &self.visits {
            if let Some((told_at, told, _)) = visit.told {
                self.what_was_told_is_true(*call, visit, told, report);
                self.a_refusal_has_its_reason(*call, visit, (told_at, told), promise, report);
            }
        }
        self.answers_are_equal(report);
        self.outcomes_stand(promise, trouble, report);
        if let Some(last) = self.last {
            self.the_record_agrees(last, promise, report);
        }
    }

    fn effects_are_as_many_as_lives(&self, promise: &Promise, report: &mut Report) {
        let guarded = self.guarded().count();
        let unguarded = self.effects.len() - guarded;
        report.unguarded += unguarded as u64;
        if unguarded > 0 && !promise.open {
            self.wrong(report, Property::OneEffect, format!("{unguarded} effects came unguarded"));
        }
        report.doubles.open += (self.effects.len().saturating_sub(1).min(unguarded)) as u64;
        let explained = self.explained();
        report.doubles.loss += explained.saturating_sub(1) as u64;
        let more = (guarded - explained) as u64;
        if promise.open {
            report.doubles.open += more;
        } else if promise.takeover {
            report.doubles.takeover += more;
        } else if more > 0 {
            let words = match self.lives() - 1 {
                0 => format!("{guarded} effects in one life"),
                losses => format!("{guarded} effects, and what was lost ({losses} times in all) explains {explained}"),
            };
            self.wrong(report, Property::OneEffect, words);
        }
    }

    fn fences_rise(&self, promise: &Promise, report: &mut Report) {
        let mut highest = None;
        for (_, effect) in self.guarded() {
            if effect.fence > highest {
                highest = effect.fence;
            } else if promise.fences == Fences::Rise && self.is_whole() {
                let words = format!("effect {} came with a fence that is not above those before", effect.value);
                self.wrong(report, Property::RisingFences, words);
            } else {
                report.fence_repeats += 1;
            }
        }
    }

    fn only_what_was_asked_happened(&self, report: &mut Report) {
        let nothing_ran = |v: &Visit<'_>| v.told.is_some_and(|(_, told, _)| told.is_refusal());
        if self.visits.is_empty() && !self.effects.is_empty() {
            self.wrong(report, Property::Asked, "effects of an identity that nobody asked about".into());
        } else if !self.effects.is_empty() && self.visits.values().all(nothing_ran) {
            let words = "every caller was told that nothing was run for it, and something was";
            self.wrong(report, Property::NothingBehindFailure, words.into());
        }
        for (_, effect) in &self.effects {
            if !self.visits.is_empty() && !self.visits.values().any(|v| *v.question == effect.question) {
                let words =
                    format!("effect {} answers a question that nobody asked: {}", effect.value, effect.question);
                self.wrong(report, Property::Asked, words);
            }
        }
    }

    fn what_was_told_is_true(&self, call: Call, visit: &Visit<'_>, told: &Told, report: &mut Report) {
        let n = call.0;
        if told.is_refusal()
            && let Some((_, own)) = self.effects.iter().find(|(_, e)| e.call == Some(call))
        {
            let words = format!("call {n} was told that nothing was run for it, and effect {} was its own", own.value);
            self.wrong(report, Property::NothingBehindFailure, words);
        }
        let Some(value) = told.value() else { return };
        let Some((_, effect)) = self.effects.iter().find(|(_, e)| e.value == value) else {
            let words = format!("call {n} was told {value}, and no such effect took place");
            return self.wrong(report, Property::EffectBehindSuccess, words);
        };
        if effect.question != *visit.question {
            let words = format!("call {n} asked {} and got the answer to {}", visit.question, effect.question);
            self.wrong(report, Property::OwnQuestion, words);
        }
        let ran = matches!(told, Told::Fresh(_) | Told::Unrecorded(_) | Told::Unguarded(_));
        if ran && effect.fence.is_none() != matches!(told, Told::Unguarded(_)) {
            let words = format!("call {n} was told {told}, and effect {value} came with fence {:?}", effect.fence);
            self.wrong(report, Property::GuardIsTold, words);
        }
        if let (true, Some(other)) = (ran, effect.call)
            && other != call
        {
            let words = format!("call {n} was told that it ran, and effect {value} is that of call {}", other.0);
            self.wrong(report, Property::EffectBehindSuccess, words);
        }
    }

    /// Whoever is refused for what happened before, or for what is not there, is told the truth about that.
    fn a_refusal_has_its_reason(
        &self,
        call: Call,
        visit: &Visit<'_>,
        (told_at, told): (usize, &Told),
        promise: &Promise,
        report: &mut Report,
    ) {
        let (n, asked) = (call.0, visit.question);
        let done: Vec<_> =
            self.effects.iter().filter(|(place, _)| *place < told_at).map(|(_, e)| &e.question).collect();
        let wrong = match told {
            Told::Mismatch if self.visits.values().all(|v| v.question.what == asked.what) => {
                (Property::OwnQuestion, format!("call {n} was refused as another question, and all asked the same"))
            }
            // What was given up after many attempts has dropped its question: there the credentials alone are compared.
            Told::Stranger if self.visits.values().all(|v| v.question.by == asked.by) => {
                (Property::OwnQuestion, format!("call {n} was refused as a stranger, and nobody else asked"))
            }
            Told::Done if done.is_empty() => {
                (Property::EffectBehindSuccess, format!("call {n} was told that it was done, and nothing had been"))
            }
            Told::Done if !promise.unread && !done.contains(&asked) => {
                (Property::OwnQuestion, format!("call {n} asked {asked} and was told that it was done, as another was"))
            }
            Told::NoToken if self.token_stands(visit.asked_at, told_at) => {
                (Property::Tokens, format!("call {n} was told that there is no token, and there was one"))
            }
            _ => return,
        };
        self.wrong(report, wrong.0, wrong.1);
    }

    /// Whether a token stood from one place to another.
    fn token_stands(&self, from: usize, to: usize) -> bool {
        let at = self.time_of(to);
        let is_lost = |issued: usize| self.losses.iter().any(|(since, loss)| *since < to && issued <= loss.until);
        self.tokens.iter().any(|(issued, until)| *issued < from && at < *until && !is_lost(*issued))
    }

    fn all_had_a_token(&self, report: &mut Report) {
        for (done, effect) in self.guarded() {
            let asked = self.asked_for(effect);
            let is_lost = |issued: usize| self.losses.iter().any(|(since, loss)| issued < *since && loss.until < asked);
            if !self.tokens.iter().any(|(issued, _)| issued < done && !is_lost(*issued)) {
                let words = format!("effect {} took place without a token", effect.value);
                self.wrong(report, Property::Tokens, words);
            }
        }
    }

    fn answers_are_equal(&self, report: &mut Report) {
        let told = self.visits.values().filter_map(|v| v.told);
        let values: BTreeSet<_> = told.filter_map(|(_, told, _)| told.standing()).collect();
        if values.len() > self.lives() && !self.is_open {
            let words = format!("callers were told different outcomes: {values:?}");
            self.wrong(report, Property::EqualAnswers, words);
        }
    }

    /// The first outcome that was told as recorded, and where.
    fn first_outcome(&self) -> Option<(usize, &'a str)> {
        let told = self.visits.values().filter_map(|v| v.told);
        told.filter_map(|(place, told, _)| Some((place, told.standing()?))).min()
    }

    fn time_of(&self, place: usize) -> Duration {
        self.events.iter().find(|(p, _)| *p == place).map_or(Duration::ZERO, |(_, event)| event.at)
    }

    /// Whether something other than the guard kept a call from its outcome: see [`Promise::in_trouble`].
    fn is_excused(&self, visit: &Visit<'_>, told_at: usize, promise: &Promise, trouble: &Trouble) -> bool {
        let (asked, told) = (self.time_of(visit.asked_at), self.time_of(told_at));
        let waited = told.saturating_sub(asked) >= promise.patience;
        let beside = |v: &Visit<'_>| {
            let Some((until, Told::Refused | Told::Done | Told::Unclear, label)) = v.told else { return false };
            v.asked_at < told_at && visit.asked_at < until && promise.after_success.contains(&label)
        };
        waited || trouble.is_felt((visit.asked_at, asked), told_at, promise.lingers) || self.visits.values().any(beside)
    }

    fn outcomes_stand(&self, promise: &Promise, trouble: &Trouble, report: &mut Report) {
        let Some((known_at, known)) = self.first_outcome() else { return };
        let effect = self.effects.iter().find(|(_, e)| e.value == known);
        let question = effect.map(|(_, e)| &e.question);
        // A process tells what it has in memory, also of a claim that was lost before the outcome could be recorded.
        let since = effect.map_or(known_at, |(place, _)| known_at.min(*place));
        for (call, visit) in &self.visits {
            let Some((told_at, told, label)) = visit.told else { continue };
            let since = since.min(self.oldest_run_under_way(visit.asked_at).unwrap_or(since));
            if visit.asked_at < known_at || self.is_forgotten_between(since, told_at) {
                continue;
            }
            let right = match told {
                Told::Replayed(value) => value == known,
                Told::Mismatch => question.is_none_or(|known| known.what != visit.question.what),
                Told::Stranger => question.is_none_or(|known| known.by != visit.question.by),
                Told::Refused | Told::Done | Told::Unclear => {
                    promise.after_success.contains(&label)
                        || promise.in_trouble.contains(&label) && self.is_excused(visit, told_at, promise, trouble)
                }
                Told::NoToken | Told::Fresh(_) | Told::Unrecorded(_) | Told::Unguarded(_) => false,
            };
            if !right {
                let words =
                    format!("outcome {known} was known when call {} was made, and it was told {told}, {label}", call.0);
                self.wrong(report, Property::OutcomeStands, words);
            }
        }
    }

    /// When the oldest call was made that had not come to its end at a place, and may have been a run, of which not every one
    /// gets as far as its effect. Its process does not know yet that its claim is lost, and answers copies by it.
    fn oldest_run_under_way(&self, place: usize) -> Option<usize> {
        let may_run =
            |told: &Told| !matches!(told, Told::Replayed(_)) && (!told.is_refusal() || *told == Told::Refused);
        let is_under_way = |call: &&Visit<'_>| {
            call.asked_at < place && call.told.is_none_or(|(told_at, told, _)| told_at > place && may_run(told))
        };
        self.visits.values().filter(is_under_way).map(|call| call.asked_at).min()
    }

    fn the_record_agrees(&self, last: &Last, promise: &Promise, report: &mut Report) {
        let (kind, property, wrong) = match last {
            Last::InFlight => {
                let left = !promise.in_flight_at_the_end;
                ("in flight", Property::Terminal, left.then(|| "still in flight when all is over".to_owned()))
            }
            Last::Done(Some(value)) => {
                let none = !self.effects.iter().any(|(_, e)| e.value == *value);
                let words = format!("the store has outcome {value}, and no such effect took place");
                ("done", Property::RecordAgrees, none.then_some(words))
            }
            Last::Done(None) => ("done", Property::RecordAgrees, None),
            Last::Unknown => ("unknown", Property::RecordAgrees, None),
            Last::Parked => ("parked", Property::RecordAgrees, None),
            Last::Nothing => {
                let happened = self.is_whole() && !promise.takeover && !self.effects.is_empty();
                let words = "an effect took place, and the store would let the next one run".to_owned();
                ("nothing", Property::RecordAgrees, happened.then_some(words))
            }
        };
        *report.last.entry(kind).or_default() += 1;
        if let Some(words) = wrong {
            return self.wrong(report, property, words);
        }
        let Some((_, known)) = self.first_outcome().filter(|_| self.is_whole()) else { return };
        let agrees = match last {
            Last::Done(value) => value.as_deref().is_none_or(|value| value == known),
            _ => false,
        };
        if !agrees {
            let words = format!("callers were told {known}, and at the end the store has {last:?}");
            self.wrong(report, Property::RecordAgrees, words);
        }
    }
}
