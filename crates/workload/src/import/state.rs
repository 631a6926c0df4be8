//! How large the state of a model is by DLIO's own formula, which its runs write.
//!
//! It follows `checkpointing/base_checkpointing.py` of DLIO, divisions without rest included. Invariant: no product
//! overflows, whatever a file says.

use block::Result;

use super::tree::Table;

/// What is unsaid, as DLIO has it.
const VOCABULARY: u64 = 32_000;
const HIDDEN: u64 = 2_048;
const FEED_FORWARD: u64 = 8_192;
const HEADS: u64 = 32;
const HEADS_OF_KEYS: u64 = 8;
const MODEL_BYTES: u64 = 10_240;

/// Dimensions are at most that, so that products of four stay numbers of 128 bits.
const DIMENSION_MAX: u64 = 1_000_000_000;

/// `model` of a file.
pub struct Model {
    pub name: Option<String>,
    is_transformer: bool,
    bytes: u64,
    layers: u64,
    hidden: u64,
    vocabulary: u64,
    feed_forward: u64,
    heads: u64,
    heads_of_keys: u64,
    tensor: u64,
    pipeline: u64,
    data: u64,
    zero_stage: u64,
    element: u64,
    element_of_optimizer: u64,
    groups: Vec<u64>,
    layer_parameters: Vec<u64>,
}

impl Model {
    /// From the table, or from the name alone that older files have.
    pub fn of(root: &mut Table) -> Result<Model> {
        let (mut name, mut table) = (None, None);
        match root.take(&["model"])? {
            Some(value) if value.is_table() => table = Some(value.table()?),
            Some(value) => name = Some(value.word()?.to_owned()),
            None => {}
        }
        let mut table = match table {
            Some(table) => table,
            None => root.table(&["model"])?,
        };
        name = name.or(table.word(&["name"])?);
        let is_transformer = table.word(&["type"])?.is_some_and(|kind| kind == "transformer");
        let bytes = dimension(&mut table, "model_size_bytes")?.or(dimension(&mut table, "model_size")?);
        let layers = dimension_or_none(&mut table, "num_layers")?.unwrap_or(0);
        let element = element(&mut table, "model_datatype", 2)?;
        let element_of_optimizer = self::element(&mut table, "optimizer_datatype", 4)?;
        let groups = numbers(&mut table, "optimization_groups")?;
        let layer_parameters = numbers(&mut table, "layer_parameters")?;
        let mut parallelism = table.table(&["parallelism"])?;
        let mut part = |key| Ok(dimension(&mut parallelism, key)?.unwrap_or(1));
        let (tensor, pipeline) = (part("tensor")?, part("pipeline")?);
        let data = dimension_or_none(&mut parallelism, "data")?.unwrap_or(1);
        let zero_stage = parallelism.whole(&["zero_stage"])?.unwrap_or(0);
        parallelism.end(&[])?;
        let mut transformer = table.table(&["transformer"])?;
        let mut size = |key, unsaid| Ok(dimension(&mut transformer, key)?.unwrap_or(unsaid));
        let model = Model {
            name,
            is_transformer,
            bytes: bytes.unwrap_or(MODEL_BYTES),
            layers,
            hidden: size("hidden_size", HIDDEN)?,
            vocabulary: size("vocab_size", VOCABULARY)?,
            feed_forward: size("ffn_hidden_size", FEED_FORWARD)?,
            heads: size("num_attention_heads", HEADS)?,
            heads_of_keys: size("num_kv_heads", HEADS_OF_KEYS)?,
            tensor,
            pipeline,
            data,
            zero_stage,
            element,
            element_of_optimizer,
            groups,
            layer_parameters,
        };
        transformer.end(&[])?;
        table.end(&[])?;
        Ok(model)
    }

    /// What writes it: DLIO is told by MPI, and its file says how many make one copy of the model.
    pub fn processes(&self) -> u64 {
        [self.pipeline, self.data].iter().fold(self.tensor, |product, part| product.saturating_mul(*part))
    }

    /// Bytes of all processes.
    pub fn state_bytes(&self) -> f64 {
        // Without ZeRO, the copies of a model beside the first write nothing.
        let writers = if self.zero_stage == 0 { self.processes() / self.data } else { self.processes() };
        let of_model = if self.is_transformer { 0 } else { u128::from(self.bytes) };
        let of_each = of_model + self.optimizer_bytes();
        self.layer_bytes() + writers as f64 * of_each as f64
    }

    /// Parameters of all layers, the embedding and the head.
    fn parameters(&self) -> u128 {
        let (inner, outer) = self.layer_parts(1, 1);
        if self.layers == 0 { 0 } else { inner * u128::from(self.layers) + outer }
    }

    /// Parameters of a layer, and of those beside the layers, in so many shards of tensors and of data.
    fn layer_parts(&self, tensor: u64, data: u64) -> (u128, u128) {
        let [hidden, vocabulary, feed_forward] = [self.hidden, self.vocabulary, self.feed_forward].map(u128::from);
        let keys = u128::from(self.hidden / self.heads) * u128::from(self.heads_of_keys);
        let shard = |count: u128| count / u128::from(tensor) / u128::from(data);
        let norm = hidden / u128::from(data);
        let attention = shard(hidden * (hidden + 2 * keys)) + shard(hidden * hidden);
        let inner = 2 * norm + attention + shard(hidden * 2 * feed_forward) + shard(hidden * feed_forward);
        (inner, 2 * shard(hidden * vocabulary) + norm)
    }

    /// Weights. Each layer is with one part of the pipeline; below stage 3 of ZeRO, one copy of the model writes them.
    fn layer_bytes(&self) -> f64 {
        let copies = if self.zero_stage >= 3 { self.data } else { 1 };
        if !self.layer_parameters.is_empty() {
            let of_layer: f64 = self.layer_parameters.iter().map(|count| (count / self.tensor) as f64).sum();
            return of_layer * self.layers as f64 * self.tensor as f64 * copies as f64;
        }
        if self.layers == 0 {
            return 0.0;
        }
        let (inner, outer) = self.layer_parts(self.tensor, copies);
        // The last norm is no tensor that is split, though each of the tensor shards writes it.
        let shards = u128::from(self.tensor) * u128::from(copies);
        (inner * u128::from(self.layers) + outer) as f64 * shards as f64 * self.element as f64
    }

    /// State of the optimizer that one process writes: three numbers a parameter.
    fn optimizer_bytes(&self) -> u128 {
        if !self.groups.is_empty() {
            return 3 * self.groups.iter().map(|group| u128::from(*group)).sum::<u128>();
        }
        let of_model = u128::from(self.tensor) * u128::from(self.pipeline);
        let shards = if self.zero_stage > 0 { of_model * u128::from(self.data) } else { of_model };
        let own = self.parameters() / shards;
        if own == 0 { 0 } else { 3 * (own + 5 * u128::from(self.hidden)) * u128::from(self.element_of_optimizer) }
    }
}

fn dimension(table: &mut Table, key: &str) -> Result<Option<u64>> {
    let Some(value) = table.take(&[key])? else { return Ok(None) };
    let found = value.whole()?;
    let most = if key.starts_with("model_size") { u64::MAX } else { DIMENSION_MAX };
    if found == 0 && most == DIMENSION_MAX || found > most {
        return Err(value.wrong("is from 1 to 10^9"));
    }
    Ok(Some(found))
}

/// One that DLIO takes for unsaid where it is negative.
fn dimension_or_none(table: &mut Table, key: &str) -> Result<Option<u64>> {
    if table.is_negative(key) { table.take(&[key]).map(|_| None) } else { dimension(table, key) }
}

/// Bytes of one number.
fn element(table: &mut Table, key: &str, unsaid: u64) -> Result<u64> {
    let Some(value) = table.take(&[key])? else { return Ok(unsaid) };
    match value.word()? {
        "int8" | "uint8" => Ok(1),
        "fp16" | "bf16" => Ok(2),
        "fp32" => Ok(4),
        "fp64" => Ok(8),
        _ => Err(value.wrong("is none of int8, uint8, fp16, bf16, fp32 and fp64")),
    }
}

fn numbers(table: &mut Table, key: &str) -> Result<Vec<u64>> {
    table.take(&[key])?.map_or(Ok(Vec::new()), |value| value.list()?.iter().map(super::tree::Value::whole).collect())
}
