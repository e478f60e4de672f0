/* Translate with an exported SavedModel from C: no Python at run time.
 *
 *   translate SAVED_MODEL LIBRARY INPUT OUTPUT TEXT...
 *
 * LIBRARY holds the sentencepiece operators of tensorflow-text; INPUT and
 * OUTPUT are operations of the signature, as OPERATION:INDEX.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tensorflow/c/c_api.h>

static void check(TF_Status *status, const char *what) {
  if (TF_GetCode(status) == TF_OK) return;
  fprintf(stderr, "error: %s: %s\n", what, TF_Message(status));
  exit(1);
}

/* "OPERATION:INDEX" in the graph. */
static TF_Output find(TF_Graph *graph, const char *name) {
  char operation[256];
  int index;
  TF_Output found = {NULL, 0};
  if (sscanf(name, "%255[^:]:%d", operation, &index) == 2)
    found = (TF_Output){TF_GraphOperationByName(graph, operation), index};
  if (found.oper == NULL) {
    fprintf(stderr, "error: the graph has no %s\n", name);
    exit(1);
  }
  return found;
}

int main(int argc, char **argv) {
  if (argc < 6) {
    fprintf(stderr, "usage: %s SAVED_MODEL LIBRARY INPUT OUTPUT TEXT...\n",
            argv[0]);
    return 2;
  }
  const int64_t count = argc - 5;
  char **texts = argv + 5;
  TF_Status *status = TF_NewStatus();
  TF_Library *library = TF_LoadLibrary(argv[2], status);
  check(status, argv[2]);

  TF_Graph *graph = TF_NewGraph();
  TF_SessionOptions *options = TF_NewSessionOptions();
  const char *tags[] = {"serve"};
  TF_Session *session = TF_LoadSessionFromSavedModel(
      options, NULL, argv[1], tags, 1, graph, NULL, status);
  check(status, argv[1]);

  TF_Output input = find(graph, argv[3]), output = find(graph, argv[4]);
  TF_Tensor *text =
      TF_AllocateTensor(TF_STRING, &count, 1, count * sizeof(TF_TString));
  TF_TString *strings = TF_TensorData(text);
  for (int64_t i = 0; i < count; i++) {
    TF_StringInit(&strings[i]);
    TF_StringCopy(&strings[i], texts[i], strlen(texts[i]));
  }
  TF_Tensor *translation = NULL;
  TF_SessionRun(session, NULL, &input, &text, 1, &output, &translation, 1, NULL,
                0, NULL, status);
  check(status, "translation");

  const TF_TString *found = TF_TensorData(translation);
  for (int64_t i = 0; i < count; i++)
    printf("%.*s\n", (int)TF_StringGetSize(&found[i]),
           TF_StringGetDataPointer(&found[i]));

  TF_DeleteTensor(translation);
  TF_DeleteTensor(text);
  TF_CloseSession(session, status);
  TF_DeleteSession(session, status);
  TF_DeleteSessionOptions(options);
  TF_DeleteGraph(graph);
  TF_DeleteLibraryHandle(library);
  TF_DeleteStatus(status);
  return 0;
}
