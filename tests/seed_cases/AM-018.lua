-- expect: error[block-without-axis] moe_parallel_config requires ep_size > 1
return require "dialects.automodel" {
  world_size = 8, seq_length = 32, api = true,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { ep_size = 1, moe = {} },
}
