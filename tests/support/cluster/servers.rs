//! The servers of a cluster, some of which may be down.

use std::time::Duration;

use private_server::Server;

use crate::harness::Outcome;

/// Servers by number; one of them is the primary.
pub struct Servers {
    all: Vec<Option<Server>>,
    primary: usize,
}

impl Servers {
    /// Takes the servers; the first one is the primary.
    pub fn new(all: impl IntoIterator<Item = Server>) -> Servers {
        Servers {
            all: all.into_iter().map(Some).collect(),
            primary: 0,
        }
    }

    /// Number of servers, including stopped ones.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// The number of the primary.
    pub fn primary_number(&self) -> usize {
        self.primary
    }

    /// The primary, which must run.
    pub fn primary(&self) -> &Server {
        self.get(self.primary)
    }

    /// Makes another server the primary.
    pub fn set_primary(&mut self, number: usize) {
        self.primary = number;
    }

    /// A running server.
    pub fn get(&self, number: usize) -> &Server {
        self.all[number].as_ref().expect("the server runs")
    }

    /// Takes a running server, to end it.
    pub fn take(&mut self, number: usize) -> Server {
        self.all[number].take().expect("the server runs")
    }

    /// Puts a restarted server back.
    pub fn put(&mut self, number: usize, server: Server) {
        self.all[number] = Some(server);
    }

    /// The running servers.
    pub fn running(&self) -> Vec<(usize, &Server)> {
        let all = self.all.iter().enumerate();
        all.filter_map(|(number, server)| Some((number, server.as_ref()?)))
            .collect()
    }

    /// The numbers of the running servers, without the primary.
    pub fn others(&self) -> Vec<usize> {
        let running = self.running().into_iter().map(|(number, _)| number);
        running.filter(|number| *number != self.primary).collect()
    }
}

/// Operations of a cluster, independent of its kind of replication.
pub trait Cluster {
    /// Restarts a killed or stopped server, which catches up.
    ///
    /// # Errors
    /// When it does not start or does not catch up.
    fn come_back(&self, servers: &Servers, number: usize) -> anyhow::Result<Server>;

    /// As [`come_back`](Self::come_back), with a copy of another server's data. Pages cached of its former data stay in place.
    ///
    /// # Errors
    /// When it does not start or does not catch up.
    fn replace(&self, servers: &Servers, number: usize) -> anyhow::Result<Server>;

    /// Starts to replace a server, and kills it after `after`.
    ///
    /// # Errors
    /// When the others do not recover.
    fn kill_joiner(&self, servers: &Servers, number: usize, after: Duration) -> Outcome;

    /// Replaces the server `joiner`, and kills `donor` during the copy. `primary` serves, and is not in `servers` at that time.
    /// Returns the joiner if it received its data anyway. `None`: only the primary gives data, and nothing was done, or the
    /// joiner failed.
    ///
    /// # Errors
    /// When the others do not recover.
    fn kill_donor(
        &self,
        primary: &Server,
        servers: &mut Servers,
        joiner: usize,
        donor: usize,
        after: Duration,
    ) -> anyhow::Result<Option<Server>>;

    /// Whether other servers than the primary give their data.
    fn has_donors(&self) -> bool {
        true
    }

    /// Whether a server can use another one's data files.
    fn is_physical(&self, _number: usize) -> bool {
        true
    }

    /// Whether a killed primary may return with its data: it may have transactions that no other server has.
    fn takes_back_the_killed(&self) -> bool {
        true
    }

    /// From now on, every transaction that a client sees committed survives the primary.
    ///
    /// # Errors
    /// When this cannot be established.
    fn before_the_end_of_the_primary(&self, servers: &Servers) -> Outcome;

    /// Finds or makes another primary after the primary has ended.
    ///
    /// # Errors
    /// When there is none.
    fn promote(&self, servers: &mut Servers) -> Outcome;

    /// Waits until all servers have the primary's transactions.
    ///
    /// # Errors
    /// When they do not catch up.
    fn catch_up(&self, servers: &Servers) -> Outcome;
}
