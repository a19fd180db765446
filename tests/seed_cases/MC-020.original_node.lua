-- expect: note[data-none] dp = 4
-- expect: ok mesh tp=2 | original miles-credit
return require "dialects.credit" {
  as = "original", cluster = require "clusters.dgx_a100" { nodes = 1 }, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "none", tensor = 2 } },
}
