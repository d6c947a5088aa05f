//! How many effects of one identity its losses explain. Moments are places in the history, which has one order for all that
//! was reported: no clocks are compared.

/// When what an effect was granted for can have been granted: after its caller asked, before it took place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Grant {
    asked: usize,
    done: usize,
}

impl Grant {
    /// One that was asked for and done at these places. What was done before anybody asked is wrong for another reason.
    pub(super) fn within(asked: usize, done: usize) -> Self {
        Self { asked: asked.min(done), done }
    }
}

/// When a loss can have happened: not before `since`, not after `gone`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) since: usize,
    pub(super) gone: usize,
}

/// So many orders can be tried.
const MANY: usize = 10;

/// The most grants for which there are moments such that a loss of its own lies between each two that follow each other. One,
/// where nothing was lost. Of more than ten grants only counts them against the losses.
pub(super) fn most(grants: &[Grant], losses: &[Span]) -> usize {
    let lives = losses.len() + 1;
    if grants.len() > MANY && lives > 1 { grants.len().min(lives) } else { most_from(0, grants, losses) }
}

/// Tries each order. One identity has few effects, and the losses of a run do not overlap as a rule: then there is one to try.
fn most_from(from: usize, grants: &[Grant], losses: &[Span]) -> usize {
    let mut best = 0;
    for (n, grant) in grants.iter().enumerate() {
        let granted = from.max(grant.asked);
        if granted > grant.done {
            continue;
        }
        let others = without(grants, n);
        let more = |loss: usize| most_from(granted.max(losses[loss].since), &others, &without(losses, loss));
        best = best.max(1 + next(granted, losses).into_iter().map(more).max().unwrap_or(0));
        if best == grants.len().min(losses.len() + 1) {
            break;
        }
    }
    best
}

/// Losses that can come after a moment. Of two, one that comes later and is over later is of no more use now, and may be later.
fn next(after: usize, losses: &[Span]) -> Vec<usize> {
    let mut fit: Vec<_> = (0..losses.len()).filter(|n| after <= losses[*n].gone).collect();
    fit.sort_by_key(|n| (after.max(losses[*n].since), losses[*n].gone));
    let mut gone = usize::MAX;
    fit.retain(|n| {
        let ends_first = losses[*n].gone < gone || gone == usize::MAX;
        gone = gone.min(losses[*n].gone);
        ends_first
    });
    fit
}

fn without<T: Copy>(list: &[T], n: usize) -> Vec<T> {
    [&list[..n], &list[n + 1..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(grants: &[(usize, usize)], losses: &[(usize, usize)]) -> usize {
        let grants: Vec<_> = grants.iter().map(|(asked, done)| Grant::within(*asked, *done)).collect();
        let losses: Vec<_> = losses.iter().map(|(since, gone)| Span { since: *since, gone: *gone }).collect();
        most(&grants, &losses)
    }

    #[test]
    fn a_loss_explains_a_second_grant_only_from_between_the_two() {
        let two = [(0, 2), (4, 6)];
        for (loss, most) in [((3, 3), 2), ((1, 5), 2), ((5, 9), 2), ((0, 1), 2), ((7, 9), 1)] {
            assert_eq!(explained(&two, &[loss]), most, "{loss:?}");
        }
        assert_eq!(explained(&[(3, 5), (4, 6)], &[(1, 2)]), 1, "both came after it");
        assert_eq!(explained(&two, &[]), 1);
        assert_eq!(explained(&[], &[(1, 2)]), 0);
    }

    #[test]
    fn each_loss_explains_one_more() {
        let three = [(0, 2), (4, 6), (8, 10)];
        assert_eq!(explained(&three, &[(1, 9)]), 2);
        assert_eq!(explained(&three, &[(1, 9), (1, 9)]), 3);
        assert_eq!(explained(&three, &[(3, 3), (3, 3)]), 2, "nothing lies between the later two");
        assert_eq!(explained(&three, &[(3, 3), (7, 7)]), 3);
    }

    /// A gateway may send long after its grant: the order of effects is not that of grants.
    #[test]
    fn the_first_effect_may_be_of_the_second_grant() {
        assert_eq!(explained(&[(3, 4), (0, 5)], &[(2, 2)]), 2);
        assert_eq!(explained(&[(1, 9), (2, 3)], &[(5, 5)]), 2);
    }

    #[test]
    fn a_short_loss_within_a_long_one_does_not_use_the_long_one_up() {
        assert_eq!(explained(&[(0, 2), (0, 8), (9, 20)], &[(1, 15), (4, 6)]), 3);
        assert_eq!(explained(&[(0, 2), (0, 8), (9, 20)], &[(1, 15)]), 2);
    }
}
