-- expect: error[pattern-matched-nothing] model.layers.*.mlp.no_proj
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { tp_size = 2, tp_plan = { ["model.layers.*.mlp.no_proj"] = "colwise" } },
}
