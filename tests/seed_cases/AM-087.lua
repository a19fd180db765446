-- expect: warning[not-applied] dp_shard is 1
-- expect: ok mesh tp=2
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { strategy = "megatron_fsdp", tp_size = 2 },
}
