-- A trainer that is no table is one mistake.
return require "dialects.credit" { world_size = 2, model = { type = "wxformer" }, trainer = 3 }
