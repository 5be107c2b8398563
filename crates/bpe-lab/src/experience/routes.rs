//! HTTP routes of the experience, below `/api/experience`.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bpe::console::{Answer, Refusal, Said, blocking};
use serde::Deserialize;
use serde_json::Value;

use super::page;
use super::run::{Request, Run};
use super::state::Experience;

type Shared = State<Arc<Experience>>;

pub fn router(experience: Arc<Experience>) -> Router {
    Router::new()
        .route("/", get(shown))
        .route("/run", post(begin))
        .route("/stop", post(stop))
        .route("/results/{id}", get(result))
        .with_state(experience)
}

async fn shown(State(experience): Shared) -> Json<Value> {
    Json(experience.json())
}

async fn begin(
    State(experience): Shared,
    Said(request): Said<Request>,
) -> Answer<(StatusCode, Json<Run>)> {
    let server = Arc::clone(&experience.server);
    let run = blocking(&server, move || experience.begin(&request)).await?;
    Ok((StatusCode::ACCEPTED, Json(run)))
}

async fn stop(State(experience): Shared) -> StatusCode {
    experience.stop_run();
    StatusCode::NO_CONTENT
}

#[derive(Deserialize)]
struct Form {
    #[serde(default)]
    format: Option<String>,
}

async fn result(
    State(experience): Shared,
    Path(id): Path<String>,
    Query(form): Query<Form>,
) -> Answer<Response> {
    let run = experience.result(&id);
    let run =
        run.ok_or_else(|| Refusal::not_found(format!("there is no result `{id}` (any more)")))?;
    let (kind, ending, text) = match form.format.as_deref() {
        None | Some("json") => (
            "application/json",
            "json",
            serde_json::to_string_pretty(&run).unwrap_or_default(),
        ),
        Some("html") => ("text/html; charset=utf-8", "html", page::html(&run)),
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
