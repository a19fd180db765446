-- Keys of miles-credit with a value of another kind: an empty list, a value for a table.
return require "dialects.credit" {
  world_size = 2,
  model = {
    type = "wxformer",
    cross_embed_kernel_sizes = { {}, { 2, 4 }, { 2, 4 }, { 2, 4 } },
    dim = {},
  },
  trainer = { type = "era5-gen2", parallelism = { data = "ddp" } },
}
