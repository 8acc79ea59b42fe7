//! The nodes of a cluster: which there are, and a connection to the one that has a key.
//!
//! The nodes that the URL names are asked for the others of their data centre. A node that cannot be reached is left
//! alone for a while, and its requests go to another one: any node answers for all. Connections are made by tasks of
//! their own, so that what becomes of one is known also where nobody waits for it any more.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::{Handle, Id};
use tokio::sync::{Mutex, OnceCell};

use super::connection::{Access, CONNECT_WITHIN, Connection, Trouble};
use super::frame::{Answer, Consistency, Rows, Run, set_of_texts};
use super::token::{Ring, token};
use crate::retry::Pauses;

/// Connections of all nodes together, at least: over a long link one connection does not fill it.
const N_CONNECTIONS: usize = 8;
/// How long a request waits for a connection before it asks another node. All nodes that are tried have to fit into
/// the time of an attempt, which may be 4 s.
const PATIENCE: Duration = Duration::from_millis(1200);
/// A node that could not be reached is not tried again for so long, if there is another one.
const LEFT_ALONE: Duration = Duration::from_secs(10);
/// Nodes that are tried for one request.
const MOST_TRIED: usize = 3;
/// Nodes of one data centre; rings of larger ones are cut short.
const MOST_NODES: usize = 4096;

/// A cluster, as far as it is known.
pub(super) struct Cluster {
    contacts: Vec<(String, u16)>,
    access: Access,
    known: OnceCell<Known>,
    /// Connections are driven by the runtime that opened them.
    slots: StdMutex<HashMap<Id, Arc<Slots>>>,
    failed: Arc<Failed>,
    next: AtomicUsize,
}

/// The nodes, those of the URL first, and which has which keys.
#[derive(Debug)]
struct Known {
    nodes: Vec<(String, u16)>,
    ring: Ring,
}

/// By node and number.
type Slots = StdMutex<HashMap<(usize, usize), Slot>>;

/// Whoever makes the connection has it locked.
type Slot = Arc<Mutex<Option<Arc<Connection>>>>;

/// When which node could not be reached.
#[derive(Default)]
struct Failed(StdMutex<HashMap<usize, Instant>>);

impl Failed {
    fn set(&self, node: usize, when: Option<Instant>) {
        let mut failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match when {
            Some(when) => failed.insert(node, when),
            None => failed.remove(&node),
        };
    }

    fn is_left_alone(&self, node: usize) -> bool {
        let failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get(&node).is_some_and(|at| at.elapsed() < LEFT_ALONE)
    }
}

/// What went wrong, and at which node.
pub(super) type Failure = (Trouble, String);

impl Cluster {
    pub(super) fn new(contacts: Vec<(String, u16)>, access: Access) -> Self {
        let (known, slots) = (OnceCell::new(), StdMutex::default());
        let (failed, next) = (Arc::default(), AtomicUsize::new(0));
        Self { contacts, access, known, slots, failed, next }
    }

    /// Runs a statement that is used often, on the node that has the key, if one is given.
    pub(super) async fn execute(
        &self,
        statement: &str,
        run: Run<'_>,
        key: Option<&[u8]>,
    ) -> Result<Answer, Failure> {
        let (connection, node) = self.connection(key.map(token)).await?;
        let answer = connection.execute(statement, run).await;
        answer.map_err(|trouble| (trouble, node))
    }

    /// The rows that a statement gives which is used once.
    pub(super) async fn rows(
        &self,
        statement: &str,
        run: Run<'_>,
    ) -> Result<Rows, Failure> {
        let (connection, node) = self.connection(None).await?;
        rows_of(&connection, statement, run).await.map_err(|trouble| (trouble, node))
    }

    /// Runs a statement that changes what tables there are.
    pub(super) async fn make(
        &self,
        statement: &str,
        run: Run<'_>,
    ) -> Result<(), Failure> {
        let (connection, node) = self.connection(None).await?;
        let made = connection.query(statement, run).await;
        made.map(drop).map_err(|trouble| (trouble, node))
    }

    /// Waits for a while until all nodes know the same tables.
    pub(super) async fn agrees(&self) -> Result<(), Failure> {
        let mut pauses = Pauses::new();
        let run = Run { values: &[], consistency: Consistency::LocalOne, page: None };
        loop {
            let (connection, node) = self.connection(None).await?;
            let mut versions = Vec::new();
            for table in ["system.local", "system.peers"] {
                let statement = format!("SELECT schema_version FROM {table}");
                let rows = rows_of(&connection, &statement, run).await;
                let rows = rows.map_err(|trouble| (trouble, node.clone()))?.rows;
                versions.extend(rows.into_iter().flatten());
            }
            versions.dedup();
            // One that is down for longer learns of it when it comes back.
            if versions.len() <= 1 || !pauses.wait(None).await {
                return Ok(());
            }
        }
    }

    async fn connection(
        &self,
        token: Option<i64>,
    ) -> Result<(Arc<Connection>, String), Failure> {
        let known = self.known.get_or_try_init(|| self.learn()).await?;
        // Any order spreads requests: no other memory is published through it.
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let n = known.nodes.len();
        let first = token.and_then(|token| known.ring.node(token)).unwrap_or(turn % n);
        // Those of a node that is gone are spread over all others.
        let others = (1..n).map(|step| (first + 1 + (turn + step) % (n - 1)) % n);
        let all = std::iter::once(first).chain(others);
        let mut tried: Vec<_> = all
            .filter(|node| !self.failed.is_left_alone(*node))
            .take(MOST_TRIED)
            .collect();
        if tried.is_empty() {
            tried.push(first);
        }
        let per_node = N_CONNECTIONS.div_ceil(n);
        let patience = if tried.len() > 1 { PATIENCE } else { CONNECT_WITHIN };
        let mut failure = None;
        for node in tried {
            let address = &known.nodes[node];
            match self.one(address, (node, turn / n % per_node), patience).await {
                Ok(connection) => return Ok((connection, shown(address))),
                // The first one is that which should have answered.
                Err(trouble) => {
                    failure.get_or_insert((trouble, shown(address)));
                }
            }
        }
        Err(failure
            .unwrap_or((Trouble::Broken("no node is known".into()), String::new())))
    }

    /// The connection of this node and number; made now where there is none.
    async fn one(
        &self,
        address: &(String, u16),
        number: (usize, usize),
        patience: Duration,
    ) -> Result<Arc<Connection>, Trouble> {
        let slots = {
            let mut all = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry(Handle::current().id()).or_default())
        };
        let slot = {
            let mut slots = slots.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(slots.entry(number).or_default())
        };
        let had = tokio::time::timeout(patience, self.in_slot(slot, address, number.0));
        had.await.unwrap_or_else(|_| {
            self.failed.set(number.0, Some(Instant::now()));
            let why = format!("no answer within {} ms", patience.as_millis());
            Err(Trouble::Unreachable(why))
        })
    }

    async fn in_slot(
        &self,
        slot: Slot,
        address: &(String, u16),
        node: usize,
    ) -> Result<Arc<Connection>, Trouble> {
        let mut slot = slot.lock_owned().await;
        if let Some(open) = slot.as_ref().filter(|open| open.is_open()) {
            return Ok(Arc::clone(open));
        }
        let (address, access) = (address.clone(), self.access.clone());
        let failed = Arc::clone(&self.failed);
        let opening = tokio::spawn(async move {
            *slot = None;
            let opened = Connection::open((&address.0, address.1), &access).await;
            let opened = opened.map(Arc::new);
            // That this process has too many files open is not the node's fault.
            let is_at_fault = matches!(&opened, Err(why) if *why != Trouble::OpenFiles);
            failed.set(node, is_at_fault.then(Instant::now));
            *slot = opened.as_ref().ok().map(Arc::clone);
            opened
        });
        let ended = |_| Err(Trouble::Broken("the connection was given up".to_owned()));
        opening.await.unwrap_or_else(ended)
    }

    /// Asks the nodes of the URL for all others.
    async fn learn(&self) -> Result<Known, Failure> {
        let mut failure = None;
        // One that was left alone might be the only one that there still is.
        let patience = if self.contacts.len() > 1 { PATIENCE } else { CONNECT_WITHIN };
        for (number, address) in self.contacts.iter().enumerate() {
            let learnt = async {
                let connection = self.one(address, (number, 0), patience).await?;
                self.nodes(&connection, number).await
            };
            match learnt.await {
                Ok(known) => return Ok(known),
                Err(trouble) => {
                    failure.get_or_insert((trouble, shown(address)));
                }
            }
        }
        Err(failure
            .unwrap_or((Trouble::Broken("no node is named".into()), String::new())))
    }

    async fn nodes(
        &self,
        connection: &Connection,
        number: usize,
    ) -> Result<Known, Trouble> {
        let run = Run { values: &[], consistency: Consistency::LocalOne, page: None };
        let own = "SELECT data_center, partitioner, tokens FROM system.local";
        let peers = "SELECT data_center, rpc_address, tokens FROM system.peers";
        let own = rows_of(connection, own, run).await?.rows.into_iter().next();
        let [centre, partitioner, tokens] =
            own.and_then(|row| row.try_into().ok()).unwrap_or([None, None, None]);
        let mut known = Known { nodes: self.contacts.clone(), ring: Ring::default() };
        let mut ring = numbered(tokens.as_deref(), number);
        for row in
            rows_of(connection, peers, run).await?.rows.into_iter().take(MOST_NODES)
        {
            let Ok([centre_of_peer, address, tokens]) =
                <[Option<Bytes>; 3]>::try_from(row)
            else {
                continue;
            };
            let Some(host) = address.as_deref().and_then(ip) else { continue };
            if centre_of_peer == centre {
                let node = known.number((host, self.contacts[number].1));
                ring.extend(numbered(tokens.as_deref(), node));
            }
        }
        if partitioner.is_some_and(|name| name.ends_with(b"Murmur3Partitioner")) {
            known.ring = Ring::new(ring);
        }
        Ok(known)
    }
}

impl Known {
    fn number(&mut self, address: (String, u16)) -> usize {
        let found = self.nodes.iter().position(|known| *known == address);
        found.unwrap_or_else(|| {
            self.nodes.push(address);
            self.nodes.len() - 1
        })
    }
}

/// The rows that a statement gives.
async fn rows_of(
    connection: &Connection,
    statement: &str,
    run: Run<'_>,
) -> Result<Rows, Trouble> {
    let rows = connection.query(statement, run).await?.rows();
    rows.ok_or_else(|| Trouble::Broken("the answer has no rows".to_owned()))
}

/// Tokens as texts, each with this number; those that are none are left out.
fn numbered(tokens: Option<&[u8]>, node: usize) -> Vec<(i64, usize)> {
    let texts = tokens.and_then(|tokens| set_of_texts(tokens).ok()).unwrap_or_default();
    texts.iter().filter_map(|text| Some((text.parse().ok()?, node))).collect()
}

fn ip(bytes: &[u8]) -> Option<String> {
    let address = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        16 => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
        _ => return None,
    };
    (!address.is_unspecified()).then(|| address.to_string())
}

fn shown((host, port): &(String, u16)) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
