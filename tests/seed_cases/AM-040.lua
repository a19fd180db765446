-- expect: error[pattern-matched-nothing] names no module
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32", class = "NewForCausalLM", tp_plan = { ["transformer.h.*.attn"] = "colwise" } },
  distributed = { tp_size = 2 },
}
