-- No model at all.
return require "dialects.credit" {
  world_size = 2,
  trainer = { type = "era5-gen2", parallelism = { data = "ddp", domain = 2 } },
}
