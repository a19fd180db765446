-- expect: error[pattern-matched-nothing] 'model.layers.*.mlp.down' names no module
-- expect: error[unknown-word] recipe_name = 'blockwise'
return require "dialects.automodel" {
  cluster = require "clusters.dgx_h100" { nodes = 1 }, seq_length = 32,
  model = require "models.llama" "tiny",
  fp8 = { filter_fqns = { "model.layers.*.mlp.down" }, recipe_name = "blockwise" },
}
