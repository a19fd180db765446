-- expect: error[ep-owned] block_sparse_moe | EP-owned
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.mixtral" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { tp_size = 2, tp_plan = { ["model.layers.*.block_sparse_moe"] = "colwise" } },
}
