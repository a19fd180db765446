-- expect: error[ep-without-experts] ep_size = 2 with LlamaForCausalLM
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { ep_size = 2 },
}
