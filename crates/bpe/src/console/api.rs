//! The interface under `/api`: JSON both ways. Docs: `docs/console.md`.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequest, Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::sync::broadcast::error::RecvError;

use super::error::Refusal;
use super::events::Event;
use super::experience::{self, Experience, Run};
use super::page::{self, Pages};
use super::switching;
use super::tasks::Task;
use super::watched::{Line, Watched};
use super::{Console, guard};

/// The most a request may bring; a file of SQL statements is the largest.
const BODY: usize = 256 << 10;

pub type Answer<T> = Result<T, Refusal>;
pub type Shared = State<Arc<Console>>;

/// Everything the console answers to.
pub fn router(console: Arc<Console>, pages: Pages) -> Router {
    let api = Router::new()
        .route("/about", get(about))
        .route("/servers", get(servers))
        .route("/servers/{id}/live", get(live))
        .route("/servers/{id}/history", get(history))
        .route("/servers/{id}/details", get(details))
        .route("/servers/{id}/plan", post(plan))
        .route("/servers/{id}/switch", post(switch))
        .route("/servers/{id}/settings", post(settings))
        .route("/events", get(events))
        .route("/tasks/{id}", get(task))
        .route("/experience", get(experience))
        .route("/experience/run", post(begin_run))
        .route("/experience/stop", post(stop_run))
        .route("/experience/results/{id}", get(result))
        .fallback(async || Refusal::not_found("there is no such address in this interface"))
        .method_not_allowed_fallback(async || {
            Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "this address takes another method",
            )
        })
        .layer(middleware::from_fn_with_state(
            Arc::clone(&console.guard),
            guard::ask_token,
        ))
        .layer(DefaultBodyLimit::max(BODY))
        .with_state(Arc::clone(&console));
    Router::new()
        .nest("/api", api)
        .fallback_service(Router::new().fallback(page::serve).with_state(pages))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&console.guard),
            guard::stand,
        ))
}

impl Console {
    pub fn server(&self, id: &str) -> Answer<&Arc<Watched>> {
        self.servers
            .iter()
            .find(|server| server.id == id)
            .ok_or_else(|| Refusal::not_found(format!("the console knows no server `{id}`")))
    }

    /// While two states are compared on a server, its switch is not for others.
    fn may_change(&self, server: &Arc<Watched>) -> Answer<()> {
        match &self.experience {
            Some(experience)
                if experience.is_comparing() && Arc::ptr_eq(experience.server(), server) =>
            {
                Err(Refusal::conflict(
                    "a comparison is running on this server, and turns the switch itself",
                )
                .advise("wait for its end, or stop it on the experience page"))
            }
            _ => Ok(()),
        }
    }
}

/// Runs what waits for this server beside the threads that answer requests, when the server's turn has come.
async fn blocking<T: Send + 'static>(
    server: &Watched,
    work: impl FnOnce() -> Answer<T> + Send + 'static,
) -> Answer<T> {
    let turn = server.turn().await.ok_or_else(|| {
        Refusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the server has not answered earlier requests yet",
        )
        .advise("try again when it does; the console goes on asking it")
    })?;
    let done = tokio::task::spawn_blocking(move || {
        // Kept until the work ends, even when nobody waits for its answer any more.
        let _turn = turn;
        work()
    });
    done.await.unwrap_or_else(|_| {
        Err(Refusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the console failed at this request; its terminal says where",
        ))
    })
}

async fn about(State(console): Shared) -> Json<Value> {
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "experience": console.experience.is_some(),
    }))
}

async fn servers(State(console): Shared) -> Json<Vec<Value>> {
    let shown = console
        .experience
        .as_ref()
        .map(|experience| experience.server().id.as_str());
    let list = console.servers.iter().map(|server| {
        let mut summary = server.summary();
        summary["experience"] = json!(shown == Some(server.id.as_str()));
        summary
    });
    Json(list.collect())
}

async fn live(State(console): Shared, Path(id): Path<String>) -> Answer<Response> {
    let (first, receiver) = console.server(&id)?.listen();
    let first = stream::iter(first);
    let rest = stream::unfold(receiver, async |mut receiver| {
        loop {
            match receiver.recv().await {
                Ok(line) => return Some((line, receiver)),
                // This page was too slow; what it missed was of seconds that are over.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    let lines = first
        .chain(rest)
        .map(|line: Line| Ok::<_, std::convert::Infallible>(Bytes::from_owner(OwnedLine(line))));
    let headers = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((headers, Body::from_stream(lines)).into_response())
}

impl Console {
    fn experience(&self) -> Answer<&Arc<Experience>> {
        self.experience.as_ref().ok_or_else(|| {
            Refusal::not_found("this console has no experience page")
                .advise("make demo UI=1 opens one on a server of its own; bpe console --experience on the first server")
        })
    }
}

async fn experience(State(console): Shared) -> Json<Value> {
    Json(match &console.experience {
        Some(experience) => experience.json().await,
        None => {
            json!({ "available": false, "server": null, "tests": [], "run": null, "results": [] })
        }
    })
}

async fn begin_run(
    State(console): Shared,
    Said(request): Said<experience::Request>,
) -> Answer<(StatusCode, Json<Run>)> {
    let experience = Arc::clone(console.experience()?);
    experience.await_scripts(&request).await?;
    let server = Arc::clone(experience.server());
    let run = blocking(&server, move || experience.begin(&request)).await?;
    Ok((StatusCode::ACCEPTED, Json(run)))
}

async fn stop_run(State(console): Shared) -> Answer<StatusCode> {
    console.experience()?.stop();
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
struct Form {
    #[serde(default)]
    format: Option<String>,
}

async fn result(
    State(console): Shared,
    Path(id): Path<String>,
    Query(form): Query<Form>,
) -> Answer<Response> {
    let run = console.experience()?.result(&id);
    let run =
        run.ok_or_else(|| Refusal::not_found(format!("there is no result `{id}` (any more)")))?;
    let (kind, ending, text) = match form.format.as_deref() {
        None | Some("json") => (
            "application/json",
            "json",
            serde_json::to_string_pretty(&run).unwrap_or_default(),
        ),
        Some("html") => ("text/html; charset=utf-8", "html", Experience::page(&run)),
        Some(other) => {
            return Err(Refusal::bad(format!(
                "`{other}` is no format: json or html"
            )));
        }
    };
    let name = format!("attachment; filename=\"bpe-result-{id}.{ending}\"");
    let headers = [
        (header::CONTENT_TYPE, kind.to_owned()),
        (header::CONTENT_DISPOSITION, name),
    ];
    Ok((headers, text).into_response())
}

/// The JSON of a request; what is wrong with it is said as every error is.
pub struct Said<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Said<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(said)) => Ok(Self(said)),
            Err(rejection) => Err(Refusal::new(rejection.status(), rejection.body_text())),
        }
    }
}

/// So that a line that goes to many pages is in memory once.
struct OwnedLine(Line);

impl AsRef<[u8]> for OwnedLine {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

async fn history(State(console): Shared, Path(id): Path<String>) -> Answer<Response> {
    let text = console.server(&id)?.history();
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

async fn details(State(console): Shared, Path(id): Path<String>) -> Answer<Response> {
    let server = Arc::clone(console.server(&id)?);
    let asked = Arc::clone(&server);
    let text = blocking(&server, move || Ok(asked.details()?)).await?;
    let headers = [(header::CONTENT_TYPE, "application/json")];
    Ok((headers, Bytes::from_owner(OwnedLine(text))).into_response())
}

async fn plan(
    State(console): Shared,
    Path(id): Path<String>,
    Said(request): Said<switching::Request>,
) -> Answer<Json<switching::Preview>> {
    let server = Arc::clone(console.server(&id)?);
    let asked = Arc::clone(&server);
    blocking(&server, move || {
        switching::preview(&asked, &request, &console.places).map(Json)
    })
    .await
}

async fn switch(
    State(console): Shared,
    Path(id): Path<String>,
    Said(request): Said<switching::Request>,
) -> Answer<(StatusCode, Json<Task>)> {
    let server = Arc::clone(console.server(&id)?);
    console.may_change(&server)?;
    let asked = Arc::clone(&server);
    let task = blocking(&server, move || {
        switching::begin(&console, &asked, &request)
    })
    .await?;
    Ok((StatusCode::ACCEPTED, Json(task)))
}

async fn settings(
    State(console): Shared,
    Path(id): Path<String>,
    Said(wanted): Said<Map<String, Value>>,
) -> Answer<Json<switching::settings::Applied>> {
    let server = Arc::clone(console.server(&id)?);
    console.may_change(&server)?;
    let asked = Arc::clone(&server);
    blocking(&server, move || {
        switching::change_settings(&asked, &wanted).map(Json)
    })
    .await
}

async fn events(State(console): Shared) -> Json<Vec<Event>> {
    Json(console.events.all())
}

async fn task(State(console): Shared, Path(id): Path<String>) -> Answer<Json<Task>> {
    let task = console.tasks.get(&id);
    let task =
        task.ok_or_else(|| Refusal::not_found(format!("there is no task `{id}` (any more)")))?;
    Ok(Json(task))
}
