//! What is asked of the cluster as a whole. Any node will do: it passes the question on to the active master.

use crate::client::Client;
use crate::client::error::{ClientError, Failure, WriteError};
use crate::client::retry::Attempts;
use crate::protocol::{AdminRequest, AdminResponse, ClusterStatus, Request, Response, TableMap};
use crate::region::{RegionId, ServerId, TableName, TableSpec};
use bytes::Bytes;

impl Client {
    /// Makes a table whose regions are cut at `splits` (stored keys, sorted). That there is one of this kind already is success.
    pub async fn create_table(&self, name: TableName, spec: TableSpec, splits: Vec<Bytes>) -> Result<(), WriteError> {
        self.order(AdminRequest::CreateTable { name, spec, splits }).await
    }

    /// Drops the table and all that is in it.
    pub async fn drop_table(&self, name: TableName) -> Result<(), WriteError> {
        match self.order(AdminRequest::DropTable { name }).await {
            // An attempt whose answer was lost may have dropped it. Whoever did: it is gone.
            Err(WriteError::Unknown(ClientError::NotFound(_))) => Ok(()),
            other => other,
        }
    }

    /// Gives a region's lead to another of its in-sync replicas.
    pub async fn hand_over(&self, region: RegionId, to: ServerId) -> Result<(), WriteError> {
        self.order(AdminRequest::HandOver { region, to }).await
    }

    /// Makes `survivor` the region's only replica and gives up what it does not hold.
    pub async fn recover_accept_loss(&self, region: RegionId, survivor: ServerId) -> Result<(), WriteError> {
        self.order(AdminRequest::RecoverAcceptLoss { region, survivor }).await
    }

    pub async fn list_tables(&self) -> Result<Vec<TableName>, ClientError> {
        match self.ask(AdminRequest::ListTables).await? {
            AdminResponse::Tables(tables) => Ok(tables),
            _ => Err(unexpected()),
        }
    }

    /// The table and its region map.
    pub async fn describe_table(&self, name: TableName) -> Result<TableMap, ClientError> {
        let mut attempts = self.attempts();
        self.fetch_map(name, &mut attempts).await
    }

    pub async fn status(&self) -> Result<ClusterStatus, ClientError> {
        match self.ask(AdminRequest::Status).await? {
            AdminResponse::Status(status) => Ok(status),
            _ => Err(unexpected()),
        }
    }

    pub(super) fn attempts(&self) -> Attempts {
        Attempts::new(&self.inner.env, self.call_time, self.inner.attempt_time)
    }

    pub(super) async fn fetch_map(&self, name: TableName, attempts: &mut Attempts) -> Result<TableMap, ClientError> {
        match self.try_all(AdminRequest::DescribeTable { name }, attempts).await? {
            AdminResponse::Table(map) => {
                let mut nodes = self.inner.nodes.lock();
                map.regions.iter().filter_map(|place| place.address.as_ref()).for_each(|address| nodes.learn(address));
                drop(nodes);
                Ok(map)
            }
            _ => Err(unexpected()),
        }
    }

    async fn ask(&self, request: AdminRequest) -> Result<AdminResponse, ClientError> {
        self.try_all(request, &mut self.attempts()).await
    }

    async fn order(&self, request: AdminRequest) -> Result<(), WriteError> {
        let mut attempts = self.attempts();
        match self.try_all(request, &mut attempts).await {
            Ok(AdminResponse::Done) => Ok(()),
            Ok(_) => Err(WriteError::Unknown(unexpected())),
            Err(error) => Err(WriteError::of(error, attempts.may_have_happened)),
        }
    }

    /// Asks one node after the other until one answers.
    async fn try_all(&self, request: AdminRequest, attempts: &mut Attempts) -> Result<AdminResponse, ClientError> {
        let is_repeatable = !matches!(request, AdminRequest::RecoverAcceptLoss { .. });
        let request = Request::Admin(request);
        let mut refusals = 0;
        loop {
            let (address, nodes) = self.preferred_node();
            let failure = match self.inner.pool.call(&address, &request, attempts.attempt_deadline()).await {
                Ok(Response::Admin(response)) => return Ok(response),
                Ok(Response::Error(error)) => Failure::of_answer(error),
                Ok(_) => Failure::unexpected(),
                Err(error) => {
                    refusals = if error.is_refusal() { refusals + 1 } else { 0 };
                    if refusals == nodes {
                        return Err(ClientError::Refused(error.to_string()));
                    }
                    Failure::of_call(error)
                }
            };
            self.avoid_node(&address);
            let gives_up = !is_repeatable && matches!(&failure, Failure::Retry(retry) if retry.may_have_happened);
            let more = attempts.again(failure).await;
            if gives_up {
                return Err(more.err().unwrap_or_else(unexpected_silence));
            }
            more?;
        }
    }

    /// The node to ask, and how many there are.
    fn preferred_node(&self) -> (String, usize) {
        let nodes = self.inner.nodes.lock();
        (nodes.addresses[nodes.preferred % nodes.addresses.len()].clone(), nodes.addresses.len())
    }

    /// Asks the next one from now on, unless somebody has moved on already.
    fn avoid_node(&self, address: &str) {
        let mut nodes = self.inner.nodes.lock();
        let len = nodes.addresses.len();
        if nodes.addresses[nodes.preferred % len] == address {
            nodes.preferred = (nodes.preferred + 1) % len;
        }
    }
}

fn unexpected() -> ClientError {
    ClientError::Unavailable("a node gave an answer to another question".to_owned())
}

fn unexpected_silence() -> ClientError {
    ClientError::Unavailable("the answer was lost".to_owned())
}
