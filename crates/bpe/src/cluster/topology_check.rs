//! Preconditions for changing the next server of a cluster: all participate, none is behind, and the primary is unchanged.

use super::membership::Membership;
use crate::support::failure::Failure;

/// Checks whether this server's state permits changes of the cluster.
///
/// # Errors
/// The reason, as a message.
pub fn check(name: &str, membership: &Membership, max_lag_s: f64) -> Result<(), String> {
    if !membership.in_step {
        return Err(format!("{name} is {}", membership.describe()));
    }
    match membership.late_s() {
        Some(late) if late > max_lag_s => Err(format!(
            "{name} is {late:.0} s behind, and {max_lag_s} are allowed"
        )),
        _ => Ok(()),
    }
}

/// Indexes of the servers that applications may write to, in order.
pub fn primaries<'a>(all: impl Iterator<Item = (usize, &'a Membership)>) -> Vec<usize> {
    let mut found: Vec<usize> = all
        .filter(|(_, membership)| membership.role.is_primary())
        .map(|(number, _)| number)
        .collect();
    found.sort_unstable();
    found
}

/// Checks that no server has left, fallen behind or changed its role since the rolling change began. A change must not
/// take a second server away. `seen`: servers by name; `began`: indexes of the primaries at the start.
///
/// # Errors
/// Why no server may be changed now.
pub fn still(
    seen: Vec<(&str, Result<Membership, Failure>)>,
    max_lag_s: f64,
    began: &[usize],
) -> Result<(), Failure> {
    let refused = |why: String| Failure::step(format!("not changed: {why}"));
    let mut members = Vec::new();
    for (name, membership) in &seen {
        let membership = membership
            .as_ref()
            .map_err(|failure| refused(format!("{name} does not answer ({})", failure.what)))?;
        check(name, membership, max_lag_s).map_err(refused)?;
        members.push(membership);
    }
    let now = primaries(members.into_iter().enumerate());
    if now == began {
        return Ok(());
    }
    let names: Vec<_> = now.iter().map(|number| seen[*number].0).collect();
    let names = match names.is_empty() {
        true => "no server".to_owned(),
        false => names.join(", "),
    };
    Err(refused(format!(
        "roles have changed since it began: what replicates from nobody now is {names}"
    )))
}

#[cfg(test)]
mod tests {
    use super::super::group::tests::{replica, server};
    use super::super::membership::Role;
    use super::*;

    #[test]
    fn late_or_unsynced_server_blocks_the_change() {
        let mut late = replica(1, 9);
        assert_eq!(check("a", &late, 10.0), Ok(()));
        late.lag_s = Some(2000.0);
        assert!(
            check("a", &late, 10.0)
                .unwrap_err()
                .contains("a is 2000 s behind")
        );
        late.delay_s = 1995;
        assert_eq!(check("a", &late, 10.0), Ok(()), "on purpose");
        late.in_step = false;
        assert!(check("a", &late, 10.0).is_err());
    }

    #[test]
    fn failover_changes_the_primaries() {
        let (old, follower, promoted) = (
            server(9, Role::Primary),
            replica(1, 9),
            server(1, Role::Standalone),
        );
        assert_eq!(primaries([(3, &old), (0, &follower)].into_iter()), [3]);
        assert_eq!(primaries([(3, &old), (0, &promoted)].into_iter()), [0, 3]);
        let seen =
            |second: &Membership| vec![("a", Ok(follower.clone())), ("b", Ok(second.clone()))];
        assert!(still(seen(&old), 10.0, &[1]).is_ok());
        let why = still(seen(&follower), 10.0, &[1]).unwrap_err().what;
        assert!(why.ends_with("now is no server"), "{why}");
        let why = still(seen(&promoted), 10.0, &[0]).unwrap_err().what;
        assert!(why.ends_with("now is b"), "{why}");
        let gone = vec![("a", Err(Failure::step("no answer")))];
        assert!(still(gone, 10.0, &[]).is_err());
    }
}
