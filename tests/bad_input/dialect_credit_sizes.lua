-- miles-credit's model cannot have these sizes. Each gives one error, under the name of the written key.
return require "dialects.credit" {
  world_size = 2,
  model = {
    type = "wxformer", image_height = 64, image_width = 4,
    dim = { 4, 8, 16, 32 }, dim_head = 4,
    padding_conf = { activate = true, mode = "earth", pad_lat = { 8 }, pad_lon = 6 },
    ff_dropout = "none",
  },
  trainer = { type = "era5-gen2", parallelism = { data = "ddp" } },
}
