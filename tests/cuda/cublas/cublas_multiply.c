/* The products of the double, which run when the stream reaches them. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "tests/cuda/cublas/cublas_private.h"

DType cublas_type(cudaDataType type)
{
    if (type == CUDA_R_32F) return DT_f32;
    if (type == CUDA_R_16BF) return DT_bf16;
    if (type == CUDA_R_16F) return DT_f16;
    if (type == CUDA_R_8F_E4M3) return DT_e4m3;
    assert(type == CUDA_R_8F_E5M2);
    return DT_e5m2;
}

bool cublas_is_eight(DType t)
{
    return t == DT_e4m3 || t == DT_e5m2;
}

bool cublas_has_bias(uint32_t e)
{
    return e == CUBLASLT_EPILOGUE_BIAS || e == CUBLASLT_EPILOGUE_GELU_BIAS ||
           e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

bool cublas_has_vector(uint32_t e)
{
    return cublas_has_bias(e) || e == CUBLASLT_EPILOGUE_BGRADA || e == CUBLASLT_EPILOGUE_BGRADB;
}

bool cublas_has_aux(uint32_t e)
{
    return e == CUBLASLT_EPILOGUE_GELU_AUX || e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
           e == CUBLASLT_EPILOGUE_DGELU;
}

static double element(const Described *l, const void *at, bool transposed, int64_t batch,
                      uint64_t row, uint64_t column)
{
    uint64_t r = transposed ? column : row, c = transposed ? row : column;
    assert(r < l->rows && c < l->columns);
    return number_read(cublas_type(l->type), at,
                       (uint64_t)(batch * l->stride) + c * (uint64_t)l->leading + r);
}

static double of_a(const Launch *x, int64_t batch, uint64_t i, uint64_t k)
{
    return element(&x->a, x->at_a, x->o.a == CUBLAS_OP_T, batch, i, k);
}

static double of_b(const Launch *x, int64_t batch, uint64_t k, uint64_t j)
{
    return element(&x->b, x->at_b, x->o.b == CUBLAS_OP_T, batch, k, j);
}

static uint64_t summed(const Launch *x)
{
    return x->o.a == CUBLAS_OP_T ? x->a.rows : x->a.columns;
}

/* Adds up a row of A times a column of B. Inputs are floats at most, so each product is rounded
 * once. */
static float one_sum(const Launch *x, const float *row, const float *column)
{
    float part[2] = {0, 0};
    uint64_t n = summed(x);
    for (uint64_t step = 0; step < n; step++) {
        uint64_t k = x->way == DOUBLE_WAY_backwards ? n - 1 - step : step;
        part[x->way == DOUBLE_WAY_split && step >= n / 2] += row[k] * column[k];
    }
    return part[0] + part[1];
}

static float scale_of(const Operation *o, DType t, uint64_t i, uint64_t j)
{
    if (!cublas_is_eight(t) || o->scale_a == NULL) return 1;
    bool rows = o->mode_a == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    assert(o->mode_a == o->mode_b);
    return o->scale_a[rows ? i : 0] * o->scale_b[rows ? j : 0];
}

static double gelu(double x, bool derivative)
{
    const double k = 0.7978845608028654, c = 0.044715;
    double t = tanh(k * (x + c * x * x * x));
    return derivative ? .5 * (1 + t) + .5 * x * (1 - t * t) * k * (1 + 3 * c * x * x)
                      : .5 * x * (1 + t);
}

/* Applies the epilogue to a sum in fp32. The result is rounded only once, when it is written. */
static double finish(const Launch *x, double sum, uint64_t i, uint64_t j)
{
    uint32_t e = x->o.epilogue;
    DType t = cublas_type(x->d.type);
    uint64_t aux = j * (uint64_t)x->o.aux_leading + i;
    if (cublas_double.forgets) return sum;
    if (cublas_has_bias(e)) sum += number_read(t, x->o.vector, i);
    if (e == CUBLASLT_EPILOGUE_DGELU) return sum * gelu(number_read(t, x->o.aux, aux), true);
    if (cublas_has_aux(e)) number_write(t, x->o.aux, aux, sum);
    return e & CUBLASLT_EPILOGUE_GELU ? gelu(sum, false) : sum;
}

static void write_sums(const Launch *x)
{
    bool of_rows = x->o.epilogue == CUBLASLT_EPILOGUE_BGRADA;
    uint64_t n = of_rows ? x->d.rows : x->d.columns;
    if (!of_rows && x->o.epilogue != CUBLASLT_EPILOGUE_BGRADB) return;
    if (cublas_double.forgets) return;
    for (uint64_t i = 0; i < n; i++) {
        float sum = 0;
        for (uint64_t k = 0; k < summed(x); k++)
            sum += (float)(of_rows ? of_a(x, 0, i, k) : of_b(x, 0, k, i));
        number_write(cublas_type(x->d.type), x->o.vector, i, (double)sum);
    }
}

static uint64_t bytes_of(const Described *l)
{
    uint64_t last = (uint64_t)(l->batch - 1) * (uint64_t)l->stride +
                    (l->columns - 1) * (uint64_t)l->leading + l->rows;
    return last * dtype_bytes(cublas_type(l->type));
}

static bool are_apart(const void *x, uint64_t x_bytes, const void *y, uint64_t y_bytes)
{
    return (uintptr_t)x + x_bytes <= (uintptr_t)y || (uintptr_t)y + y_bytes <= (uintptr_t)x;
}

/* Blocks run in any order, so a block must not read memory that another block writes. */
static void check_apart(const Launch *x)
{
    uint64_t d = bytes_of(&x->d), a = bytes_of(&x->a), b = bytes_of(&x->b);
    uint64_t vector = x->d.rows * dtype_bytes(cublas_type(x->d.type));
    if (x->o.epilogue == CUBLASLT_EPILOGUE_BGRADB) vector = vector / x->d.rows * x->d.columns;
    assert(are_apart(x->at_d, d, x->at_a, a) && are_apart(x->at_d, d, x->at_b, b));
    assert(x->old == 0 || x->at_c == x->at_d || are_apart(x->at_d, d, x->at_c, d));
    if (cublas_has_aux(x->o.epilogue)) {
        assert(are_apart(x->o.aux, d, x->at_a, a) && are_apart(x->o.aux, d, x->at_b, b));
        assert(are_apart(x->o.aux, d, x->at_d, d));
    }
    if (!cublas_has_vector(x->o.epilogue)) return;
    assert(are_apart(x->o.vector, vector, x->at_d, d));
    assert(are_apart(x->o.vector, vector, x->at_a, a) &&
           are_apart(x->o.vector, vector, x->at_b, b));
}

void cublas_multiply(void *args)
{
    Launch launch = *(const Launch *)args;
    Launch *x = &launch;
    DType t = cublas_type(x->d.type);
    x->at_a = cublas_double_at(x->at_a), x->at_b = cublas_double_at(x->at_b);
    x->at_c = cublas_double_at(x->at_c), x->at_d = cublas_double_at(x->at_d);
    if (x->o.scale_a) x->o.scale_a = cublas_double_at(x->o.scale_a);
    if (x->o.scale_b) x->o.scale_b = cublas_double_at(x->o.scale_b);
    if (x->o.vector) x->o.vector = cublas_double_at(x->o.vector);
    if (x->o.aux) x->o.aux = cublas_double_at(x->o.aux);
    check_apart(x);
    bool is_alone = x->o.epilogue == CUBLASLT_EPILOGUE_DEFAULT && x->at_c == x->at_d;
    cublas_double_spend(cublas_double.ms[x->way] + (is_alone ? 0 : cublas_double.epilogue_ms));
    const uint64_t n = summed(x);
    float *rows = malloc((x->d.rows + 1) * n * sizeof *rows), *column = rows + x->d.rows * n;
    assert(rows != NULL);
    for (int64_t batch = 0; batch < x->d.batch; batch++) {
        for (uint64_t i = 0; i < x->d.rows; i++)
            for (uint64_t k = 0; k < n; k++) rows[i * n + k] = (float)of_a(x, batch, i, k);
        for (uint64_t j = 0; j < x->d.columns; j++) {
            for (uint64_t k = 0; k < n; k++) column[k] = (float)of_b(x, batch, k, j);
            for (uint64_t i = 0; i < x->d.rows; i++) {
                uint64_t at = (uint64_t)(batch * x->d.stride) + j * (uint64_t)x->d.leading + i;
                double sum = (double)(x->factor * scale_of(&x->o, cublas_type(x->a.type), i, j)) *
                             (double)one_sum(x, &rows[i * n], column);
                if (x->old != 0 && !cublas_double.forgets) sum += number_read(t, x->at_c, at);
                number_write(t, x->at_d, at, finish(x, sum, i, j));
            }
        }
    }
    free(rows);
    write_sums(x);
}
