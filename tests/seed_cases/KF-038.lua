-- expect: error[mesh-product] world_size (8) not divisible by dp_replicate*tp*pp*cp*ep (16)
-- expect: error[divides-heads] n_kv_heads (8) must be divisible by tp (16)
return require "dialects.kempnerforge" {
  world = 8,
  model = { dim = 512, n_layers = 2, n_heads = 64, n_kv_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { tp = 16 },
}
