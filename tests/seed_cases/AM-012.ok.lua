-- expect: ok mesh dp_replicate=8 | parallel ddp(buckets of 25 MiB)
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { strategy = "ddp" },
}
