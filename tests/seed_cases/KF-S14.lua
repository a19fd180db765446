-- expect: ok count tp all_gather 18 | count tp reduce_scatter 15 | equal
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64, compile_model = false },
  distributed = { tp = 2 },
}
