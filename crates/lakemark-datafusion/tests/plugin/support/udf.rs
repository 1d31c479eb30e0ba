//! User-defined functions that count, wait, fail and meddle.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::{Array, AsArray, Int64Array};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::error::Result;
use datafusion::logical_expr::async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility, create_udf};
use datafusion::prelude::SessionContext;

/// Registers `name(BIGINT) -> BIGINT`, which gives its argument back after `act` has seen the batch of arguments.
pub fn register(ctx: &SessionContext, name: &str, act: impl Fn(&[i64]) -> Result<()> + Send + Sync + 'static) {
    let function = move |args: &[ColumnarValue]| {
        let values = args[0].to_array(1)?;
        act(values.as_primitive::<Int64Type>().values())?;
        Ok(ColumnarValue::Array(values))
    };
    let int = DataType::Int64;
    ctx.register_udf(create_udf(name, vec![int.clone()], int, Volatility::Immutable, Arc::new(function)));
}

/// Rows that a function has seen.
#[derive(Debug, Default, Clone)]
pub struct Seen(Arc<AtomicUsize>);

impl Seen {
    pub fn add(&self, rows: usize) {
        self.0.fetch_add(rows, Ordering::SeqCst);
    }

    /// Rows since the last call.
    pub fn take(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }
}

/// `slow(BIGINT) -> BIGINT`: an async function, as one that calls a service, that gives twice its argument.
pub struct Slow {
    signature: Signature,
    seen: Seen,
}

impl Slow {
    pub fn register(ctx: &SessionContext, seen: Seen) {
        let signature = Signature::exact(vec![DataType::Int64], Volatility::Volatile);
        let udf = AsyncScalarUDF::new(Arc::new(Self { signature, seen }));
        ctx.register_udf(udf.into_scalar_udf());
    }
}

impl fmt::Debug for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slow")
    }
}

impl PartialEq for Slow {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Slow {}

impl Hash for Slow {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl ScalarUDFImpl for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        unreachable!("only the async form is called")
    }
}

#[async_trait]
impl AsyncScalarUDFImpl for Slow {
    async fn invoke_async_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let values = args.args[0].to_array(args.number_rows)?;
        self.seen.add(values.len());
        tokio::time::sleep(Duration::from_millis(2)).await;
        let doubled: Int64Array = values.as_primitive::<Int64Type>().iter().map(|v| v.map(|v| v * 2)).collect();
        Ok(ColumnarValue::Array(Arc::new(doubled)))
    }
}
