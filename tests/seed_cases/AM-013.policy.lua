-- expect: note[dialect-differs] cast forward inputs
-- expect: ok precision f32 bf16 f32
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { mp_policy = { param_dtype = "bfloat16", reduce_dtype = "float32" } },
}
