//! The interface under `/api`: JSON both ways. Docs: `docs/user/console.md`.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::{StreamExt, stream};
use serde_json::{Map, Value, json};
use tokio::sync::broadcast::error::RecvError;

use super::answer::{Answer, Said, blocking};
use super::comparing::{self, Comparing};
use super::error::Refusal;
use super::events::Event;
use super::page::{self, Pages};
use super::state::Console;
use super::task::Task;
use super::watched::{Line, Watched};
use super::{clusters, console_extension, guard, rolling, switching};

/// Maximum size of a request body; the largest is a file of SQL statements.
const BODY: usize = 256 << 10;

pub type Shared = State<Arc<Console>>;

/// Routes of the console.
pub fn router(console: Arc<Console>, pages: Pages) -> Router {
    let experience = match &console.guest {
        Some(guest) => Arc::clone(guest).routes(),
        None => console_extension::none(),
    };
    let api = Router::new()
        .route("/about", get(about))
        .route("/servers", get(servers))
        .route("/servers/{id}/live", get(live))
        .route("/servers/{id}/history", get(history))
        .route("/servers/{id}/details", get(details))
        .route("/servers/{id}/plan", post(plan))
        .route("/servers/{id}/switch", post(switch))
        .route("/servers/{id}/settings", post(settings))
        .route("/servers/{id}/tables", post(tables))
        .route("/servers/{id}/compare", post(compare))
        .route("/servers/{id}/compare/stop", post(stop_comparing))
        .route("/clusters", get(all_clusters))
        .route("/clusters/{name}/plan", post(plan_cluster))
        .route("/clusters/{name}/switch", post(switch_cluster))
        .route("/clusters/{name}/stop", post(stop_cluster))
        .route("/events", get(events))
        .route("/tasks/{id}", get(task))
        .nest("/experience", experience.with_state(()))
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
            Arc::new(console.guard.names().clone()),
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

    /// While a comparison runs on a server, other requests must not turn its switch.
    fn may_change(&self, server: &Arc<Watched>) -> Answer<()> {
        match &self.guest {
            Some(guest) if guest.is_comparing() && Arc::ptr_eq(guest.server(), server) => {
                Err(Refusal::conflict(
                    "a comparison is running on this server, and operates the switch itself",
                )
                .advise("wait until it ends, or stop it on the experience page"))
            }
            _ => Ok(()),
        }
    }
}

async fn about(State(console): Shared) -> Json<Value> {
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "experience": console.guest.is_some(),
    }))
}

async fn servers(State(console): Shared) -> Json<Vec<Value>> {
    let shown = console
        .guest
        .as_ref()
        .map(|guest| guest.server().id.as_str());
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
                // The page was too slow; the lost lines describe past seconds.
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

/// Shares one copy of a line among many pages.
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
        switching::preview(&asked, &request, &console.locations).map(Json)
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

async fn tables(
    State(console): Shared,
    Path(id): Path<String>,
    Said(request): Said<switching::tables::Request>,
) -> Answer<Json<switching::settings::Applied>> {
    let server = Arc::clone(console.server(&id)?);
    console.may_change(&server)?;
    let asked = Arc::clone(&server);
    blocking(&server, move || {
        switching::change_table(&asked, &request).map(Json)
    })
    .await
}

async fn compare(
    State(console): Shared,
    Path(id): Path<String>,
    Said(request): Said<comparing::Request>,
) -> Answer<(StatusCode, Json<Comparing>)> {
    let server = console.server(&id)?;
    console.may_change(server)?;
    let begun = comparing::begin(server, &request)?;
    Ok((StatusCode::ACCEPTED, Json(begun)))
}

async fn stop_comparing(State(console): Shared, Path(id): Path<String>) -> Answer<StatusCode> {
    console.server(&id)?.stop_comparing();
    Ok(StatusCode::NO_CONTENT)
}

async fn all_clusters(State(console): Shared) -> Json<Vec<Value>> {
    Json(clusters::summaries(&console))
}

async fn plan_cluster(
    State(console): Shared,
    Path(name): Path<String>,
    Said(request): Said<rolling::Request>,
) -> Answer<Json<Value>> {
    let first = clusters::first(&console, &name)?;
    let asked = Arc::clone(&console);
    blocking(&first, move || {
        rolling::preview(&asked, &name, &request).map(Json)
    })
    .await
}

async fn switch_cluster(
    State(console): Shared,
    Path(name): Path<String>,
    Said(request): Said<rolling::Request>,
) -> Answer<(StatusCode, Json<Task>)> {
    let task = rolling::begin(&console, &name, request)?;
    Ok((StatusCode::ACCEPTED, Json(task)))
}

async fn stop_cluster(State(console): Shared, Path(name): Path<String>) -> StatusCode {
    console.rolling.stop(&name);
    StatusCode::NO_CONTENT
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
