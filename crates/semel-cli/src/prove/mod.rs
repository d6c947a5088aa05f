#![doc = include_str!("../../../../docs/prove.md")]

pub(crate) mod answer;
mod args;
mod chance;
mod check;
mod course;
pub(crate) mod effects;
mod judge;
pub(crate) mod key;
pub mod load;
mod machine;
mod place;
mod plan;
mod progress;
mod report;
pub(crate) mod sheet;
mod target;
mod trust;

use std::io::Write as _;

pub use args::Args;
pub use place::Place;
pub(crate) use plan::field;
pub use target::Target;
pub use trust::Trust;

use self::course::Course;
use self::judge::{Judgement, Verdict};
use self::plan::Plan;
use crate::exit::{Exit, Failure};
use crate::stop::Stop;
use crate::term::Look;

/// Runs the command to its end.
///
/// # Errors
/// A flag that cannot be, a name that does not resolve, an endpoint or `--count-url` that does not answer, stdout
/// that is gone.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (plan, course) = runtime.block_on(async {
        let mut stop = Stop::listen()?;
        let plan = Plan::new(args).await?;
        let progress = progress::Progress::start(&plan);
        let course = course::run(&plan, &progress.tick(), &mut stop).await;
        progress.end();
        Ok::<_, Failure>((plan, course?))
    })?;
    // Copies that were still waiting when a signal came are not waited for.
    runtime.shutdown_background();
    conclude(args, &plan, &course)
}

fn conclude(args: &Args, plan: &Plan, course: &Course) -> Result<Exit, Failure> {
    if let (course::Ended::Lost(why), true) = (&course.ended, course.rounds.is_empty()) {
        return Err(Failure::runtime(format!("{why}. Is it running, and is the address right?")));
    }
    let judgement = judge::judge(plan, course);
    let mut out = std::io::stdout().lock();
    let text = if args.json {
        machine::render(plan, course, &judgement)
    } else {
        report::render(plan, course, &judgement, Look::of_stdout())
    };
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(exit(&judgement))
}

fn exit(judgement: &Judgement) -> Exit {
    match judgement.verdict {
        Verdict::Safe => Exit::Clean,
        Verdict::Unsafe | Verdict::Undecided => Exit::Finding,
        Verdict::Unfinished => Exit::Runtime,
    }
}
