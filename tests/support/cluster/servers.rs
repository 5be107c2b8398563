//! The servers of a cluster, of which some may be gone for a while.

use std::time::Duration;

use private_server::Server;

use crate::harness::Outcome;

/// By their number; one of them is the primary.
pub struct Servers {
    all: Vec<Option<Server>>,
    primary: usize,
}

impl Servers {
    /// The first one is the primary.
    pub fn new(all: impl IntoIterator<Item = Server>) -> Servers {
        Servers {
            all: all.into_iter().map(Some).collect(),
            primary: 0,
        }
    }

    /// How many there are, with those that are gone.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// The number of the primary.
    pub fn primary_number(&self) -> usize {
        self.primary
    }

    /// The primary, which runs.
    pub fn primary(&self) -> &Server {
        self.get(self.primary)
    }

    /// Another one is the primary now.
    pub fn set_primary(&mut self, number: usize) {
        self.primary = number;
    }

    /// One that runs.
    pub fn get(&self, number: usize) -> &Server {
        self.all[number].as_ref().expect("the server runs")
    }

    /// Takes out one that runs, to end it.
    pub fn take(&mut self, number: usize) -> Server {
        self.all[number].take().expect("the server runs")
    }

    /// It runs again.
    pub fn put(&mut self, number: usize, server: Server) {
        self.all[number] = Some(server);
    }

    /// Those that run.
    pub fn running(&self) -> Vec<(usize, &Server)> {
        let all = self.all.iter().enumerate();
        all.filter_map(|(number, server)| Some((number, server.as_ref()?)))
            .collect()
    }

    /// The numbers of those that run and are not the primary.
    pub fn others(&self) -> Vec<usize> {
        let running = self.running().into_iter().map(|(number, _)| number);
        running.filter(|number| *number != self.primary).collect()
    }
}

/// What can be done with a cluster, whatever keeps its servers alike.
pub trait Cluster {
    /// A server starts that was killed or stopped, and gets what it has missed.
    ///
    /// # Errors
    /// When it does not.
    fn come_back(&self, servers: &Servers, number: usize) -> anyhow::Result<Server>;

    /// The same with a copy of another server's data instead of its own. What it had cached of those stays where it is.
    ///
    /// # Errors
    /// When it does not.
    fn replace(&self, servers: &Servers, number: usize) -> anyhow::Result<Server>;

    /// A server that is to be replaced is killed `after` it has begun.
    ///
    /// # Errors
    /// When the others are not as before then.
    fn kill_joiner(&self, servers: &Servers, number: usize, after: Duration) -> Outcome;

    /// The server `joiner` is replaced, and `donor` is killed meanwhile. `primary` serves, and is not among `servers` then. Returns the joiner if it has its data all the same;
    /// `None` where no other server than the primary gives data, and nothing was done.
    ///
    /// # Errors
    /// When the others are not as before then.
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

    /// Whether a server can get another one's data files.
    fn is_physical(&self, _number: usize) -> bool {
        true
    }

    /// Whether a primary that was killed may come back with its own data: it may have what nobody else has.
    fn takes_back_the_killed(&self) -> bool {
        true
    }

    /// From here on whatever a client is told to be committed outlives the primary.
    ///
    /// # Errors
    /// When that cannot be had.
    fn before_the_end_of_the_primary(&self, servers: &Servers) -> Outcome;

    /// The primary is gone: another one is found, or made.
    ///
    /// # Errors
    /// When there is none.
    fn promote(&self, servers: &mut Servers) -> Outcome;

    /// Waits until all have what the primary has.
    ///
    /// # Errors
    /// When they do not get it.
    fn catch_up(&self, servers: &Servers) -> Outcome;
}
