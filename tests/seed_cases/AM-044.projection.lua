-- expect: error[pattern-matched-nothing] mlp.up_proj
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.qwen" { size = "3-moe-tiny", capacity_factor = "all" },
  hf = { torch_dtype = "float32" },
  distributed = { tp_size = 2, tp_plan = { ["model.layers.*.mlp.up_proj"] = "colwise" } },
}
