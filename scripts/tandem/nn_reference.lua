-- The reference of tandem.nn: for each function, how to call it, its shapes, and its options with
-- name, default and meaning. nn.lua checks the names of options against this table.
-- docs/reference/lua.md prints its texts, and a test compares the page with the table.
local list = {
  { name = "nn.module", call = "nn.module { fields, forward = function(m, ...) ... end }",
    doc = "A module. Its fields that are modules become its children. The function forward reads field x as m.x. "
      .. "The passes read four fields. tp_col, tp_row and tp_vocab list paths of modules inside this one, which tp splits "
      .. "by outputs, by inputs or by the vocabulary. fsdp2_shard = true makes the module an FSDP unit." },
  { name = "nn.block", call = "nn.block { fields, forward = function(m, ...) ... end }",
    doc = "A repeated part of a model, such as a layer. Each block is a unit of FSDP2 and of full activation checkpointing, "
      .. "and pipeline stages begin at blocks." },
  { name = "nn.list", call = "nn.list { a, b } or nn.list(n, function(i) ... end)",
    doc = "A sequence of modules. Calling the list calls each module with the output of the one before. In paths, its modules "
      .. "are numbered from 0; ipairs counts them from 1." },
  { name = "nn.linear", call = "nn.linear(in_features, out_features, options)",
    shape = "[b, s, in] -> [b, s, out]", doc = "A linear map: x W + bias, with a weight W of shape [in, out].", options = {
      { "bias", "false", "Adds a bias of shape [out]." },
      { "init", "nn.normal(0, 0.02)", "Initial values of the weight." },
      { "weight", "", "An nn.embedding whose weight the linear shares: a tied head." },
      { "segments", "", "Makes several outputs (segments) with one weight. A number n: n equal segments, and the output is "
        .. "[b, s, n, out/n]. A list of sizes: segments of these sizes, and the output is [b, s, g, out/g], where g is the greatest "
        .. "common divisor of the sizes. A list has at most 64 sizes, which add up to out. nn.segment takes one segment." },
      { "spectral_norm", "false", "Divides the output by the largest singular value of the weight." } } },
  { name = "nn.segment", call = "nn.segment(x, i)", shape = "[b, s, n, size] -> [b, s, size]",
    doc = "Returns segment i of the output of an nn.linear with segments; i counts from 1." },
  { name = "nn.embedding", call = "nn.embedding(vocab, dim, options)", shape = "[b, s] -> [b, s, dim]",
    doc = "A table of learned vectors, one for each token id. Returns the vectors of the input's ids.", options = {
      { "init", "nn.normal(0, 0.02)", "Initial values of the table." } } },
  { name = "nn.position", call = "nn.position(max_len, dim, options)", shape = "[b, s, dim] -> [b, s, dim]",
    doc = "Adds a learned vector for each position. Only as many vectors exist as a sequence has tokens, at most max_len.", options = {
      { "init", "nn.normal(0, 0.02)", "Initial values of the table." } } },
  { name = "nn.sinusoid", call = "nn.sinusoid(x, options)", shape = "[b, s, dim] -> [b, s, dim]",
    doc = "Adds sines of the position to the first half of the features and cosines to the second. The frequencies fall from 1 "
      .. "to 1 / theta in equal ratios. dim must be even, and at least 4.", options = {
      { "theta", "10000", "The inverse of the lowest frequency; above 1." } } },
  { name = "nn.rmsnorm", call = "nn.rmsnorm(dim, options)", shape = "[b, s, dim] -> [b, s, dim]",
    doc = "RMS normalisation (arXiv 1910.07467): x / sqrt(mean(x^2) + eps), times a weight. It also takes [b, s, heads, dim] and "
      .. "normalises each head.", options = {
      { "eps", "1e-5", "Added to the mean square." }, { "init", "nn.ones", "Initial values of the weight." } } },
  { name = "nn.layernorm", call = "nn.layernorm(dim, options)", shape = "[b, s, dim] -> [b, s, dim]",
    doc = "Layer normalisation (arXiv 1607.06450): (x - mean(x)) / sqrt(variance(x) + eps), times a weight, plus a bias.", options = {
      { "eps", "1e-5", "Added to the variance." }, { "init", "nn.ones", "Initial values of the weight." } } },
  { name = "nn.attention", call = "nn.attention { dim = ..., heads = ..., ... }", shape = "[b, s, dim] -> [b, s, dim]",
    doc = "Multi-head attention. Its children are wq, wk, wv and wo. "
      .. "attention(x, { memory = y }) makes keys and values from y. attention(x, { table = t }) adds the numbers of t "
      .. "(nn.distance_table) to the scores.", options = {
      { "dim", "required", "Features of the input." },
      { "heads", "required", "Query heads." },
      { "kv_heads", "heads", "The number of key and value heads; it must divide heads." },
      { "head_dim", "dim / heads", "Features of a head." },
      { "causal", "true", "A token attends only to itself and to earlier tokens." },
      { "bias", "false", "Adds biases to q, k and v." },
      { "out_bias", "bias", "Adds a bias to the output." },
      { "rope_theta", "", "Rotates queries and keys by their positions (RoPE), with this base of the frequencies. head_dim must then be even. Default: no rotation." },
      { "rope_scaling", "", "Stretches the rotation for a longer context: the option scaling of nn.rope." },
      { "rope_image", "", "Positions of an image among the tokens: the option image of nn.rope." },
      { "rope_dims", "head_dim", "The number of elements of a head that are rotated, counted from the first. It must be even." },
      { "scale", "head_dim^-0.5", "Multiplies the scores, which are the products of queries and keys." },
      { "window", "", "The number of keys that a query sees: its own and the ones before it. Only with causal = true. Default: all." },
      { "cap", "", "A score x becomes cap * tanh(x / cap). Default: no cap." },
      { "sinks", "false", "Each head has one more learned score, which takes part in the softmax and has no value. These scores are the child `sinks`." },
      { "dropout", "0", "The probability of dropping a score after the softmax; below 1. It does not work with window, cap, sinks or a table." },
      { "qk_norm", "false", "Normalises each query head and each key head by its root mean square, before the rotation: true or { eps }. The children are q_norm and k_norm." },
      { "fused", "false", "One weight makes queries, keys and values: the child wqkv instead of wq, wk and wv. tp still splits it by heads." },
      { "init", "nn.normal(0, 0.02)", "Initial values of the weights." },
      { "out_init", "init", "Initial values of wo." },
      { "spectral_norm", "false", "Divides the output of each of its linears by the largest singular value of the weight." } } },
  { name = "nn.mamba2", call = "nn.mamba2 { dim = ..., heads = ..., ... }", shape = "[b, s, dim] -> [b, s, dim]",
    doc = "A state-space layer: the mixer of Mamba-2 (arXiv 2405.21060). Its children are wz, wx, wb, wc, wdt, conv_x, conv_b, "
      .. "conv_c, scan, norm and wo. The published code joins the first five into one weight. tp and cp split its heads.", options = {
      { "dim", "required", "Features of the input." },
      { "heads", "required", "Heads." },
      { "head_dim", "64", "Features of a head." },
      { "groups", "1", "The number of groups of heads; it must divide heads. The heads of a group share B and C, and are normalised together." },
      { "state", "128", "The size of the state that each feature of a head carries from token to token; head_dim * state is at most 32768." },
      { "window", "4", "The number of tokens that a convolution reads: the token itself and the ones before it." },
      { "chunk", "256", "The number of tokens that the published kernels scan as one chunk. It affects only the predicted time." },
      { "bias", "false", "Adds biases to the projections." },
      { "eps", "1e-5", "Added to the mean square in the norm." },
      { "init", "nn.normal(0, 0.02)", "Initial values of the projections." },
      { "out_init", "init", "Initial values of wo." } } },
  { name = "nn.latent_attention", call = "nn.latent_attention { dim = ..., heads = ..., kv_rank = ..., ... }",
    shape = "[b, s, dim] -> [b, s, dim]",
    doc = "Attention whose keys and values are made from one small projection (DeepSeek-V2, arXiv 2405.04434). Its children are "
      .. "wkv_a, kv_norm, wk_b, wv_b, wk_rope, wq and wo; with q_rank also wq_a and q_norm.", options = {
      { "dim", "required", "Features of the input." }, { "heads", "required", "Heads." },
      { "kv_rank", "required", "Features of the small projection from which keys and values are made." },
      { "q_rank", "", "Features of the small projection from which queries are made. Default: queries are made from the input itself." },
      { "nope_dim", "required", "Features of a query head or key head that are not rotated." },
      { "rope_dim", "required", "Features of a query head or key head that are rotated; an even number. All key heads share their rotated features." },
      { "value_dim", "nope_dim", "Features of a value head." },
      { "rope_theta", "10000", "The base of the rotation's frequencies." },
      { "rope_scaling", "", "Stretches the rotation for a longer context: the option scaling of nn.rope." },
      { "scale", "(nope_dim + rope_dim)^-0.5", "Multiplies the scores. With YaRN's mscale_all_dim, the default is multiplied by "
        .. "(0.1 mscale_all_dim ln(factor) + 1)^2." },
      { "causal", "true", "A token attends only to itself and to earlier tokens." },
      { "eps", "1e-5", "Added to the mean squares in kv_norm and q_norm." },
      { "init", "nn.normal(0, 0.02)", "Initial values of the weights." }, { "out_init", "init", "Initial values of wo." } } },
  { name = "nn.distance_table", call = "nn.distance_table { heads = ..., ... }", shape = "-> [buckets, kv_heads, heads / kv_heads]",
    doc = "A table of learned numbers that attention adds to its scores. Each head has one number for each bucket of distances "
      .. "between query and key (T5, arXiv 1910.10683). Calling the module returns the table.", options = {
      { "heads", "required", "Query heads." }, { "kv_heads", "heads", "Key and value heads." },
      { "buckets", "32", "The number of buckets: 4 to 64, a multiple of 4." },
      { "distance", "128", "The distance in tokens at which the last bucket begins; more than buckets." },
      { "init", "nn.normal(0, 0.02)", "Initial values of the table." } } },
  { name = "nn.span", call = "nn.span(x, first, count)", shape = "[b, s, ...] -> [b, count, ...]",
    doc = "Takes `count` tokens of each sequence, beginning with token `first`, which counts from 0. x may also hold token ids or "
      .. "labels." },
  { name = "nn.moe", call = "nn.moe { dim = ..., hidden = ..., experts = ..., ... }",
    shape = "[b, s, dim] -> [b, s, dim]",
    doc = "A mixture of experts: each token goes to the top_k experts with the largest router logits. "
      .. "An expert computes w2(silu(w1 x) * w3 x). Its children are router, w1, w2 and w3.", options = {
      { "gated", "true", "false: an expert computes w2(gelu(w1 x)) and has no w3." },
      { "dim", "required", "Features of the input." },
      { "hidden", "required", "Features between the products of an expert." },
      { "experts", "required", "The number of experts; at most 1024." },
      { "top_k", "2", "The number of experts to which each token goes." },
      { "capacity_factor", "1.25", "How many tokens of one sequence an expert takes, as a multiple of an even share "
        .. "(seq x top_k / experts). An expert drops the tokens beyond this number. "
        .. "\"all\": no token is dropped, because every expert has memory for all tokens. \"dropless\": no token is dropped, "
        .. "and only the rows that hold a token are stored, sent and computed. ep { bound } limits the memory for these rows." },
      { "normalise", "true", "The weights of the chosen experts add up to 1." },
      { "bias", "false", "Adds biases to the router and to the experts." },
      { "limit", "", "Limits the gates, as in gpt-oss. The gate x is capped at limit and becomes x sigmoid(1.702 x). The other "
        .. "product is clamped between -limit and limit. Then 1 is added, and the sum is multiplied by the gate." },
      { "scaling", "1", "Multiplies the weights of the chosen experts." },
      { "sigmoid", "false", "The weights are sigmoids of the logits instead of their softmax. Needs aux_loss = 0." },
      { "groups", "1", "The number of groups of experts: at most 64, and a divisor of experts. A token uses only the best groups. The score of a group is its largest logit "
        .. "or, with sigmoid, the sum of its two largest sigmoids." },
      { "top_groups", "groups", "The number of groups from which a token may choose." },
      { "aux_loss", "0.01", "Multiplies the loss that balances the experts (arXiv 2101.03961). 0 leaves it out." },
      { "balance_rate", "0", "If above 0, each expert has a bias, which is added to its sigmoid only to choose experts. After each "
        .. "step, the bias grows by this rate if fewer tokens than the mean chose the expert, and falls by it if more did "
        .. "(arXiv 2408.15664)." },
      { "z_loss", "0", "Multiplies the loss that keeps the router's logits small: the mean of their squared log-sum-exp "
        .. "(arXiv 2202.08906)." },
      { "init", "nn.normal(0, 0.02)", "Initial values of router, w1 and w3." },
      { "out_init", "init", "Initial values of w2." } } },
  { name = "nn.silu", call = "nn.silu(x)", doc = "x * sigmoid(x)." },
  { name = "nn.gelu", call = "nn.gelu(x)", doc = "GELU (arXiv 1606.08415), in its tanh form." },
  { name = "nn.quick_gelu", call = "nn.quick_gelu(x)", doc = "x * sigmoid(1.702 * x): the QuickGELU of CLIP and Qwen2-VL." },
  { name = "nn.sigmoid", call = "nn.sigmoid(x)", doc = "1 / (1 + exp(-x))." },
  { name = "nn.relu", call = "nn.relu(x)", doc = "max(x, 0), element by element." },
  { name = "nn.relu2", call = "nn.relu2(x)", doc = "The square of nn.relu(x)." },
  { name = "nn.soft_cap", call = "nn.soft_cap(x, cap)", doc = "cap * tanh(x / cap); cap must be positive." },
  { name = "nn.conv2d", call = "nn.conv2d(in_channels, out_channels, options)",
    shape = "[b, in, h, w] -> [b, out, h, w]", doc = "A convolution of fields. A plain 1x1 convolution may be split over tp "
      .. "by tp_col or tp_row. Sizes, in points, are numbers for both directions, or { height, width }. The window must fit the "
      .. "padded field.", options = {
      { "kernel", "1", "The rows and columns of the window." }, { "stride", "1", "The distance between windows." },
      { "padding", "0", "The rows and columns added at each edge." },
      { "dilation", "1", "The distance between the rows of a window." },
      { "groups", "1", "The number of groups of channels that are convolved separately; it must divide in and out. in_channels gives a depthwise convolution." },
      { "padding_mode", "zeros", "zeros, reflect, symmetric or circular; or { height, width }." },
      { "bias", "true", "Adds a bias to each channel." }, { "init", "nn.normal(0, 0.02)", "Initial values of the weight." },
      { "spectral_norm", "false", "Divides the output by the largest singular value of the weight." } } },
  { name = "nn.conv_transpose2d", call = "nn.conv_transpose2d(in_channels, out_channels, options)",
    shape = "[b, in, h, w] -> [b, out, h, w]", doc = "A transposed convolution.", options = {
      { "kernel", "1", "The rows and columns of the window." }, { "stride", "1", "The distance in the output between neighbouring input points." },
      { "padding", "0", "The rows and columns removed at each edge." },
      { "output_padding", "0", "The rows added at the bottom and the columns added at the right; less than stride." },
      { "dilation", "1", "The distance between the rows of a window." },
      { "groups", "1", "The number of groups of channels that are convolved separately." },
      { "padding_mode", "zeros", "Only zeros." }, { "bias", "true", "Adds a bias to each channel." },
      { "init", "nn.normal(0, 0.02)", "Initial values of the weight." },
      { "spectral_norm", "false", "Divides the output by the largest singular value of the weight." } } },
  { name = "nn.group_norm", call = "nn.group_norm(groups, channels, options)", shape = "[b, channels, h, w] -> same",
    doc = "Group normalisation (arXiv 1803.08494): normalises each group of channels over the whole grid. groups must divide "
      .. "channels.", options = {
      { "eps", "1e-5", "Added to the variance." }, { "init", "nn.ones", "Initial values of the weight." } } },
  { name = "nn.channel_norm", call = "nn.channel_norm(channels, options)", shape = "[b, channels, h, w] -> same",
    doc = "Layer normalisation of each point over its channels.", options = {
      { "eps", "1e-5", "Added to the variance." }, { "init", "nn.ones", "Initial values of the weight." } } },
  { name = "nn.avg_pool2d", call = "nn.avg_pool2d(x, options)", doc = "The mean of each window, padded points included.", options = {
      { "kernel", "1", "The rows and columns of the window." }, { "stride", "kernel", "The distance between windows." },
      { "padding", "0", "The rows and columns added at each edge." },
      { "dilation", "1", "The distance between the rows of a window." },
      { "padding_mode", "zeros", "zeros, reflect, symmetric or circular." } } },
  { name = "nn.max_pool2d", call = "nn.max_pool2d(x, options)", doc = "The largest value of each window.", options = {
      { "kernel", "1", "The rows and columns of the window." }, { "stride", "kernel", "The distance between windows." },
      { "padding", "0", "The rows and columns added at each edge; these are never the maximum." },
      { "dilation", "1", "The distance between the rows of a window." }, { "padding_mode", "zeros", "Only zeros." } } },
  { name = "nn.pad", call = "nn.pad(x, options)", doc = "Adds rows and columns at the edges, or removes them.", options = {
      { "rows", "0", "{ top, bottom }; negative numbers crop." },
      { "columns", "0", "{ left, right }; negative numbers crop." },
      { "mode", "zeros", "zeros, reflect, symmetric (a mirror that repeats the edge) or circular; or { height, width }. "
        .. "earth: rows behind a pole are those on the other side of the globe; columns are circular." } } },
  { name = "nn.resize", call = "nn.resize(x, options)", doc = "Resizes the field to another grid.", options = {
      { "height", "as it is", "Rows of the result." }, { "width", "as it is", "Columns of the result." },
      { "mode", "bilinear", "bilinear, or nearest." } } },
  { name = "nn.pixel_shuffle", call = "nn.pixel_shuffle(x, factor)",
    shape = "[b, c f f, h, w] -> [b, c, f h, f w]", doc = "Turns channels into points: f x f channels (f: factor) become f x f points of one channel "
      .. "(arXiv 1609.05158). factor^2 must divide the channels." },
  { name = "nn.concat", call = "nn.concat(a, b)", doc = "Returns a field with the channels of a, then those of b." },
  { name = "nn.channels", call = "nn.channels(x, first, count)", doc = "Takes `count` channels of a field, beginning with channel `first`, which counts from 0." },
  { name = "nn.mse_loss", call = "nn.mse_loss(prediction, target, options)", shape = "[b, c, h, w] twice -> loss",
    doc = "The mean squared error over channels and points.", options = {
      { "latitude", "false", "true: weights each row by the cosine of its latitude. The weights have the mean 1." } } },
  { name = "nn.window_offsets", call = "nn.window_offsets(rows, columns)",
    shape = "-> [b, (2 rows - 1)(2 columns - 1), 2]", doc = "Returns all differences in row and in column between two points of a window, repeated for each sample. rows and columns are at most 144." },
  { name = "nn.window_attention", call = "nn.window_attention(q, k, v, options)", shape = "three of [b, heads x d, h, w] -> same",
    doc = "Attention among the points of each window.", options = {
      { "heads", "required", "The number of heads; it must divide the channels." },
      { "window", "required", "The rows and columns of a window; they must divide the field. A window has at most 144 points, and at most 16384 points times features of a head." },
      { "strided", "false", "true: the points of a window are spread evenly over the field. false: they are adjacent." },
      { "bias", "required", "[b, n, 1]: a bias for each difference between two points, in the order of nn.window_offsets." },
      { "scale", "(channels / heads)^-0.5", "Multiplies the scores." } } },
  { name = "nn.image", call = "nn.image(options)", shape = "-> [b, patches, channels x patch x patch]",
    doc = "Returns the image of each sample, cut into patches. Each sample then has an image in addition to its tokens. nn.linear "
      .. "turns the patches into embeddings. `tandem run` draws images at random.", options = {
      { "height", "required", "Rows of points." }, { "width", "height", "Columns of points." },
      { "patch", "required", "The rows and columns of a patch: at most 512, and a divisor of height and width, for at most 4096 patches in each direction." }, { "channels", "3", "The number of values of a point, such as 3 for RGB." } } },
  { name = "nn.lead_tokens", call = "nn.lead_tokens(count, dim, options)", shape = "[b, s, dim] -> [b, count + s, dim]",
    doc = "Puts learned tokens in front of each sequence, such as a class token. nn.span(m.lead(x), 0, count) returns only the "
      .. "learned tokens, for example as queries of attention with { memory = x }.", options = {
      { "init", "normal(0, 0.02)", "Initial values." } } },
  { name = "nn.join", call = "nn.join(a, b)", shape = "[b, s, k], [b, t, k] -> [b, s + t, k]",
    doc = "Returns sequences with the tokens of a, then those of b." },
  { name = "nn.merge_tokens", call = "nn.merge_tokens(x, count)", shape = "[b, count x s, k] -> [b, s, count x k]",
    doc = "Each `count` neighbouring tokens become one, which has the features of all of them (Qwen2-VL). count is at most 4096." },
  { name = "nn.scale", call = "nn.scale(x, factor)", doc = "Multiplies x by a constant. To add or multiply two tensors of the same shape, write x + y or x * y." },
  { name = "nn.rope", call = "nn.rope(x, options)", shape = "[b, s, heads, d] -> [b, s, heads, d]",
    doc = "Rotates pairs of features by angles that grow with the token's position (RoPE, arXiv 2104.09864).", options = {
      { "theta", "10000", "The base of the rotation's frequencies." },
      { "scaling", "", "Stretches the rotation for a longer context; `context` is the original one, in tokens. "
        .. "Llama 3.1: { factor, low, high, context }. YaRN (arXiv 2309.00071): { kind = 'yarn', factor, context }. It also takes "
        .. "slow = 1 and fast = 32: pairs with fewer turns than slow are stretched, pairs with more than fast are not, and between "
        .. "them lies a ramp. truncate = true lets the ramp end at whole pairs; mscale and mscale_all_dim set the factor of queries "
        .. "and keys. LongRoPE (arXiv 2402.13753): { kind = 'longrope', short, long, context, length }. "
        .. "short has a factor for each pair, for sequences up to the original context; long is for longer ones; length is the new "
        .. "context. attention_factor = sqrt(1 + ln(length / context) / ln(context)) multiplies queries and keys." },
      { "image", "", "The place of an image among the tokens (Qwen2-VL, arXiv 2409.12191). In a decoder: { rows, columns, first = 0, "
        .. "sections }. first is the image's first token; sections are the numbers of pairs that turn by time, by row and by column. "
        .. "After the image, positions continue from its larger side. In an encoder: { rows, columns, block }. Patches come in "
        .. "blocks of block x block; half of the pairs turn by row, half by column." } } },
  { name = "nn.dropout", call = "nn.dropout(x, p)",
    doc = "Sets each element to 0 with probability p, at least 0 and below 1, and divides the others by 1 - p. The draw depends on the seed, the step, the "
      .. "micro-batch, the call in the model and the element's index in the whole tensor, so every mesh drops the same elements." },
  { name = "nn.cross_entropy", call = "nn.cross_entropy(logits, labels, options)", shape = "[b, s, vocab], [b, s] -> loss",
    doc = "The cross-entropy loss. Tokens with a negative label do not count.", options = {
      { "label_smoothing", "0", "The part of the label's probability that is spread evenly over the whole vocabulary." },
      { "z_loss", "0", "The loss of a token grows by this number times the squared log-sum-exp of its logits." } } },
  { name = "nn.normal", call = "nn.normal(mean, deviation)", doc = "Initial values from a normal distribution. Defaults: 0 and 1." },
  { name = "nn.uniform", call = "nn.uniform(from, to)", doc = "Initial values between from and to, uniformly distributed. Defaults: 0 and 1." },
  { name = "nn.zeros", call = "nn.zeros", doc = "Initial values of 0." },
  { name = "nn.ones", call = "nn.ones", doc = "Initial values of 1." },
  { name = "nn.uninitialized", call = "nn.uninitialized", doc = "No initial values. A plan with such a parameter is refused (init-missing)." },
  { name = "nn.family", call = "nn.family(name, what, sizes, defaults, parts)",
    doc = "For a file that describes a model family. Returns the model's name, and the config of one size with the "
      .. "plan's changes. The argument `what` names the size, as in \"8b\" or { size = \"8b\", layers = 4 }. A table in the plan "
      .. "replaces the default table. With parts = { vision = true }, the plan's table `vision` replaces only the keys that it states." },
  { name = "nn.within", call = "nn.within(family, key, value, least, most, multiple)",
    doc = "For a model family: returns the value of a config's key. Refuses the plan unless the value is an integer from least "
      .. "to most, and a multiple of `multiple`." },
  { name = "nn.with", call = "nn.with(config, changes)", doc = "A copy of a config with some keys changed." },
  { name = "nn.small", call = "nn.small(config, mesh, changes)",
    doc = "For a family's shrink(config, mesh): returns the smallest decoder of the same structure, for `tandem run --verify`." },
  { name = "nn.small_heads", call = "nn.small_heads(heads, kv_heads, mesh)",
    doc = "Returns numbers of heads and KV heads for a shrunk model. tp splits them in the same way as the original's." },
  { name = "nn.layer_pattern", call = "nn.layer_pattern(family, config, letters)",
    doc = "For families whose config.pattern has a letter for each layer: returns the pattern for config.layers layers. "
      .. "A shorter pattern is repeated. letters: { M = \"state space\", ... }." },
  { name = "nn.small_scan_heads", call = "nn.small_scan_heads(heads, groups, mesh)",
    doc = "Returns numbers of heads and groups for a shrunk state-space layer. tp and cp split them in the same way as the "
      .. "original's." },
}

local known = {} -- the options of each function: known["nn.linear"].bias == true
for _, entry in ipairs(list) do
  known[entry.name] = {}
  for _, option in ipairs(entry.options or {}) do known[entry.name][option[1]] = true end
end
return { list = list, known = known }
