//! Literal expectations, most of them copied from recordings of the reference (`FastAPI` 0.141, pydantic 2.14).

mod constraints;
mod models;
mod scalars;
mod syntax;
mod total;

use serde_json::{Value, json};

use super::{Decode, ErrorFormat, Path, decode};

/// The `detail` list for `value` in the body.
fn refused<T: Decode>(value: &Value) -> Value {
    let at = Path::body(T::SENSITIVE);
    decode::<T>(value, &at)
        .err()
        .unwrap_or_else(|| panic!("accepted {value}"))
        .detail(ErrorFormat::V1)
}

/// `type`, `msg` and `ctx` of the only error.
fn fault<T: Decode>(value: &Value) -> (String, String, Value) {
    let detail = refused::<T>(value);
    assert_eq!(detail.as_array().map(Vec::len), Some(1), "{detail}");
    let item = &detail[0];
    assert_eq!(item["loc"], json!(["body"]));
    assert_eq!(&item["input"], value);
    let text = |name: &str| item[name].as_str().unwrap().to_owned();
    (text("type"), text("msg"), item["ctx"].clone())
}
