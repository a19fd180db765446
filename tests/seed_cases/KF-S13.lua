-- expect: ok count tp all_reduce 14 | count tp all_gather 0 | equal
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, tie_embeddings = true },
  train = { batch_size = 1, seq_len = 64, compile_model = false },
  distributed = { tp = 2 },
}
