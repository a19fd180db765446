-- A type of model that miles-credit has, and this version does not plan.
return require "dialects.credit" {
  world_size = 2,
  model = { type = "unet_downscaling", depth = { 2, 2, 2 } },
  trainer = { type = "era5-gen2", parallelism = { data = "ddp" } },
}
