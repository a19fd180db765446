-- expect: error[dialect-unsupported] Sequence parallelism is not supported for NemotronHForCausalLM
return require "dialects.automodel" {
  world_size = 4, seq_length = 64,
  model = require "models.nemotron_h" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { tp_size = 2, sequence_parallel = true },
}
