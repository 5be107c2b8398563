//! The web page, built by Node and embedded at compile time. If it was not built, everything else works, and a message
//! names the missing part.

use std::path::PathBuf;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

// `ASSETS`: paths below the page's directory and their contents, sorted; empty if the page was not built.
include!(concat!(env!("OUT_DIR"), "/page.rs"));

const INDEX: &str = "index.html";

/// Message in place of a missing page.
pub const MISSING: &str = "the web page is not in this program: it was built without Node.js; install Node.js 18 or newer \
                           with npm and build again (make build). The interface under /api works";

/// Source of the page's files.
#[derive(Clone, Default)]
pub struct Pages {
    /// Replaces the embedded page, for its development.
    pub folder: Option<PathBuf>,
}

impl Pages {
    pub fn is_missing(&self) -> bool {
        self.find(INDEX).is_none()
    }

    fn find(&self, path: &str) -> Option<Vec<u8>> {
        match &self.folder {
            Some(folder) => {
                let plain = path
                    .split('/')
                    .all(|part| !part.is_empty() && !part.starts_with('.'));
                plain.then(|| std::fs::read(folder.join(path)).ok())?
            }
            None => {
                let found = ASSETS.binary_search_by_key(&path, |(name, _)| name).ok()?;
                Some(ASSETS[found].1.to_vec())
            }
        }
    }
}

/// Serves a file of the page.
pub async fn serve(State(pages): State<Pages>, request: Request) -> Response {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let path = request.uri().path().trim_start_matches('/');
    let path = if path.is_empty() { INDEX } else { path };
    let Some(bytes) = pages.find(path) else {
        return if path == INDEX {
            (
                StatusCode::SERVICE_UNAVAILABLE,
                format!("bpe console: {MISSING}\n"),
            )
                .into_response()
        } else {
            (StatusCode::NOT_FOUND, "There is no such page.\n").into_response()
        };
    };
    let mut response = bytes.into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(content_type(path)),
    );
    // Vite puts a content hash into these names.
    if path.starts_with("assets/") && pages.folder.is_none() {
        headers.insert(
            header::CACHE_CONTROL,
            HeaderValue::from_static("private, max-age=31536000, immutable"),
        );
    }
    response
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "webmanifest" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_page_are_served() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("page/assets")).unwrap();
        std::fs::write(folder.path().join("secret"), "s").unwrap();
        std::fs::write(folder.path().join("page/.hidden"), "s").unwrap();
        std::fs::write(folder.path().join("page/assets/a.js"), "a").unwrap();
        let pages = Pages {
            folder: Some(folder.path().join("page")),
        };
        assert!(pages.is_missing());
        assert_eq!(pages.find("assets/a.js").as_deref(), Some(b"a".as_slice()));
        for path in [
            "../secret",
            "assets/../../secret",
            ".hidden",
            "assets",
            "/etc/passwd",
            "assets//a.js",
            "%2e%2e/secret",
        ] {
            assert!(pages.find(path).is_none(), "{path}");
        }
    }

    #[test]
    fn what_was_compiled_in_is_sorted() {
        assert!(ASSETS.is_sorted_by_key(|(name, _)| *name));
        let pages = Pages::default();
        assert_eq!(pages.is_missing(), ASSETS.is_empty());
        assert!(pages.find("no/such").is_none());
    }
}
