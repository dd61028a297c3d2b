//! Requests to the API server, each with a deadline.
//!
//! Knows: an API server drops fields that it does not know, unless a request asks it to refuse them (`fieldValidation`).

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

use futures::future::OptionFuture;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod, Secret};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
    Preconditions, PropagationPolicy,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep, timeout_at};

use crate::config::{ClusterAccess, KubernetesConfig, PodEngine};
use crate::errors::{ClusterError, ErrorKind};
use crate::names::{MANAGER, Names};

/// The API group of `Sandbox` resources, and its versions that the backend knows, the best first.
const SANDBOX_GROUP: &str = "agents.x-k8s.io";
const SANDBOX_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(5);
/// Objects in one answer of a list.
const PAGE_SIZE: u32 = 500;

pub(crate) type Answer<T> = Result<T, ClusterError>;

#[derive(Clone)]
pub(crate) struct Cluster {
    client: Client,
    config: Arc<KubernetesConfig>,
    pub(crate) names: Names,
    pub(crate) claims: Api<PersistentVolumeClaim>,
    pub(crate) secrets: Api<Secret>,
    pub(crate) pods: Api<Pod>,
    pub(crate) events: Api<Event>,
    /// The `Sandbox` resource that the cluster serves, if it does.
    resource: Arc<OnceCell<Option<ApiResource>>>,
}

impl Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

/// The objects of one sandbox.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found {
    pub(crate) claim: Option<PersistentVolumeClaim>,
    pub(crate) sandbox: Option<DynamicObject>,
    pub(crate) pod: Option<Pod>,
}

impl Cluster {
    /// Reads the credentials. The API server need not answer yet.
    pub(crate) async fn new(config: Arc<KubernetesConfig>) -> anyhow::Result<Self> {
        let mut access = match &config.access {
            ClusterAccess::Inferred => kube::Config::infer().await?,
            ClusterAccess::File(path) => {
                let file = Kubeconfig::read_from(path)?;
                kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
            }
            ClusterAccess::Address(url) => kube::Config::new(url.as_str().parse()?),
        };
        // It repeats requests for minutes, also those that make something.
        access.default_retry = false;
        access.connect_timeout = Some(Duration::from_secs(5));
        access.write_timeout = Some(config.call_limit);
        let client = Client::try_from(access)?;
        let namespace = config.namespace.as_str();
        Ok(Self {
            claims: Api::namespaced(client.clone(), namespace),
            secrets: Api::namespaced(client.clone(), namespace),
            pods: Api::namespaced(client.clone(), namespace),
            events: Api::namespaced(client.clone(), namespace),
            names: Names::new(&config.instance),
            resource: Arc::default(),
            client,
            config,
        })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Runs a request that can be repeated, and repeats it while the API server has a passing problem.
    pub(crate) async fn call<T, Work>(
        &self,
        what: &'static str,
        request: impl Fn() -> Work,
    ) -> Answer<T>
    where
        Work: Future<Output = kube::Result<T>>,
    {
        self.call_within(self.config.call_limit, what, request)
            .await
    }

    /// The same with a limit of its own.
    pub(crate) async fn call_within<T, Work>(
        &self,
        limit: Duration,
        what: &'static str,
        request: impl Fn() -> Work,
    ) -> Answer<T>
    where
        Work: Future<Output = kube::Result<T>>,
    {
        let deadline = Instant::now() + limit;
        let mut delay = FIRST_RETRY;
        loop {
            let answer = timeout_at(deadline, request()).await;
            let answer = answer.map_err(|_| ClusterError::timed_out(what))?;
            let error = match answer {
                Ok(found) => return Ok(found),
                Err(error) => ClusterError::new(what, error),
            };
            if !error.kind.is_transient() || Instant::now() + delay >= deadline {
                return Err(error);
            }
            sleep(delay).await;
            delay = (delay * 2).min(LAST_RETRY);
        }
    }

    /// The `Sandbox` resource of the cluster. `None` if it has none.
    pub(crate) async fn resource(&self) -> Answer<Option<&ApiResource>> {
        let found = self.resource.get_or_try_init(|| async {
            let groups = self.call("reading the cluster's API groups", || {
                self.client.list_api_groups()
            });
            let mut groups = groups.await?.groups.into_iter();
            let group = groups.find(|it| it.name == SANDBOX_GROUP);
            let served = group.map(|it| it.versions).unwrap_or_default();
            let best = SANDBOX_VERSIONS
                .into_iter()
                .find(|version| served.iter().any(|it| it.version == *version));
            Ok(best.map(|version| ApiResource {
                group: SANDBOX_GROUP.to_owned(),
                version: version.to_owned(),
                api_version: format!("{SANDBOX_GROUP}/{version}"),
                kind: "Sandbox".to_owned(),
                plural: "sandboxes".to_owned(),
            }))
        });
        Ok(found.await?.as_ref())
    }

    /// `Sandbox` resources. `None` if the cluster has none.
    pub(crate) async fn sandboxes(&self) -> Answer<Option<Api<DynamicObject>>> {
        let namespace = &self.config.namespace;
        let resource = self.resource().await?;
        Ok(resource.map(|it| Api::namespaced_with(self.client.clone(), namespace, it)))
    }

    /// What makes the pods of new sandboxes.
    pub(crate) async fn engine(&self) -> Answer<PodEngine> {
        if self.config.engine == Some(PodEngine::Pods) {
            return Ok(PodEngine::Pods);
        }
        let has_sandboxes = self.resource().await?.is_some();
        Ok(match self.config.engine {
            None if !has_sandboxes => PodEngine::Pods,
            _ => PodEngine::AgentSandbox,
        })
    }

    /// The objects of a name, as the API server has them now.
    pub(crate) async fn look(&self, name: &str) -> Answer<Found> {
        let (claim, others) = tokio::join!(self.claim(name), self.look_beside_claim(name));
        Ok(Found {
            claim: claim?,
            ..others?
        })
    }

    /// The same with one request if there is nothing: a claim is made before all else of its name, and deleted last.
    pub(crate) async fn look_for_claim(&self, name: &str) -> Answer<Found> {
        let Some(claim) = self.claim(name).await? else {
            return Ok(Found::default());
        };
        Ok(Found {
            claim: Some(claim),
            ..self.look_beside_claim(name).await?
        })
    }

    async fn look_beside_claim(&self, name: &str) -> Answer<Found> {
        let sandboxes = self.sandboxes().await?;
        let sandbox = OptionFuture::from(
            sandboxes
                .as_ref()
                .map(|sandboxes| self.call("reading the Sandbox", || sandboxes.get_opt(name))),
        );
        let (sandbox, pod) = tokio::join!(sandbox, self.pod(name));
        Ok(Found {
            claim: None,
            sandbox: sandbox.transpose()?.flatten(),
            pod: pod?,
        })
    }

    async fn claim(&self, name: &str) -> Answer<Option<PersistentVolumeClaim>> {
        self.call("reading the claim", || self.claims.get_opt(name))
            .await
    }

    pub(crate) async fn pod(&self, name: &str) -> Answer<Option<Pod>> {
        self.call("reading the pod", || self.pods.get_opt(name))
            .await
    }

    /// All objects of the installation with these. A list that becomes too old while it is read starts again.
    pub(crate) async fn list<K>(&self, what: &'static str, api: &Api<K>) -> Answer<Vec<K>>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let first = ListParams::default()
            .labels(&self.names.selector())
            .limit(PAGE_SIZE);
        let (mut page, mut all) = (first.clone(), Vec::new());
        loop {
            let list = match self.call(what, || api.list(&page)).await {
                Ok(list) => list,
                Err(error) if error.kind == ErrorKind::Gone => {
                    all.clear();
                    page = first.clone();
                    continue;
                }
                Err(error) => return Err(error),
            };
            all.extend(list.items);
            let next = list.metadata.continue_.filter(|next| !next.is_empty());
            match next {
                Some(next) => page = first.clone().continue_token(&next),
                None => return Ok(all),
            }
        }
    }

    /// Creates an object. `None` if one of this name exists.
    pub(crate) async fn create<K>(
        &self,
        what: &'static str,
        api: &Api<K>,
        object: &Value,
    ) -> Answer<Option<K>>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
    {
        let body = object.to_string().into_bytes();
        let request = || async {
            let plain = kube::core::Request::new(api.resource_url());
            let request = plain.create(&PostParams::default(), body.clone());
            let mut request = request.map_err(kube::Error::BuildRequest)?;
            let uri = format!(
                "{}&fieldValidation=Strict&fieldManager={MANAGER}",
                request.uri()
            );
            let uri = uri.replacen("?&", "?", 1);
            let uri = uri.parse().map_err(Into::into);
            *request.uri_mut() = uri.map_err(kube::Error::HttpError)?;
            self.client.request::<K>(request).await
        };
        match self.call(what, request).await {
            Ok(created) => Ok(Some(created)),
            Err(error) if error.kind == ErrorKind::Conflict => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates or replaces what this service sets of an object.
    pub(crate) async fn apply<K>(
        &self,
        what: &'static str,
        api: &Api<K>,
        name: &str,
        object: &Value,
    ) -> Answer<()>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let params = PatchParams::apply(MANAGER).force().validation_strict();
        let patch = Patch::Apply(object);
        self.call(what, || api.patch(name, &params, &patch))
            .await
            .map(drop)
    }

    /// Changes members of an object. `null` removes one.
    pub(crate) async fn merge<K>(
        &self,
        what: &'static str,
        api: &Api<K>,
        name: &str,
        change: &Value,
    ) -> Answer<K>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(change);
        self.call(what, || api.patch(name, &params, &patch)).await
    }

    /// Sets annotations of a claim. `None` removes one.
    pub(crate) async fn annotate(
        &self,
        name: &str,
        annotations: &[(&str, Option<&str>)],
    ) -> Answer<PersistentVolumeClaim> {
        let all: serde_json::Map<String, Value> = annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        let change = json!({"metadata": {"annotations": all}});
        self.merge("changing the claim", &self.claims, name, &change)
            .await
    }

    /// Deletes the object of this name and uid. `Ok` if there is none.
    pub(crate) async fn delete<K>(
        &self,
        what: &'static str,
        api: &Api<K>,
        name: &str,
        uid: Option<&str>,
    ) -> Answer<()>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let params = DeleteParams {
            // A `Sandbox` stays until its pod is gone. Nothing depends on other objects.
            propagation_policy: Some(PropagationPolicy::Foreground),
            preconditions: uid.map(|uid| Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match self.call(what, || api.delete(name, &params)).await {
            Ok(_) => Ok(()),
            // Another object has the name by now.
            Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Conflict) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
