import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.exceptions.AlreadyExistsException;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.NoSuchNamespaceException;
import org.apache.iceberg.exceptions.NoSuchTableException;
import org.apache.iceberg.exceptions.ValidationException;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.CatalogHandlers;
import org.apache.iceberg.rest.RESTCatalogProperties.SnapshotMode;
import org.apache.iceberg.rest.RESTSerializers;
import org.apache.iceberg.rest.requests.CreateNamespaceRequest;
import org.apache.iceberg.rest.requests.CreateTableRequest;
import org.apache.iceberg.rest.requests.RenameTableRequest;
import org.apache.iceberg.rest.requests.UpdateTableRequest;
import org.apache.iceberg.rest.responses.ConfigResponse;
import org.apache.iceberg.rest.responses.ErrorResponse;
import org.apache.iceberg.shaded.com.fasterxml.jackson.annotation.JsonAutoDetect;
import org.apache.iceberg.shaded.com.fasterxml.jackson.annotation.PropertyAccessor;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.DeserializationFeature;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.PropertyNamingStrategies;

/**
 * An Iceberg REST catalog for tests: Iceberg's own request handlers over its JDBC catalog.
 *
 * <p>Usage: {@code java -cp JARS RestCatalogServer.java SQLITE_FILE WAREHOUSE}. Prints its port as
 * the first line and ends when its standard input does. {@code POST /fault/KIND} makes the next
 * table commit go wrong: {@code 409} and {@code 503} without acting, {@code landed-409}, {@code
 * landed-500}, {@code landed-504} and {@code landed-cut} after it has acted.
 */
public final class RestCatalogServer {
  private static final String TOKEN = "Bearer test-token";
  private final ObjectMapper mapper = new ObjectMapper();
  private final JdbcCatalog catalog = new JdbcCatalog();
  private final AtomicReference<String> fault = new AtomicReference<>("");

  private record Answer(int status, Object body) {}

  private RestCatalogServer(String file, String warehouse) {
    mapper.setVisibility(PropertyAccessor.FIELD, JsonAutoDetect.Visibility.ANY);
    mapper.configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);
    mapper.setPropertyNamingStrategy(new PropertyNamingStrategies.KebabCaseStrategy());
    RESTSerializers.registerAll(mapper);
    catalog.setConf(new Configuration());
    catalog.initialize(
        "rest",
        Map.of(
            "uri", "jdbc:sqlite:" + file,
            "warehouse", warehouse,
            "jdbc.schema-version", "V1",
            "clients", "1",
            "io-impl", "org.apache.iceberg.hadoop.HadoopFileIO"));
  }

  public static void main(String[] args) throws IOException {
    RestCatalogServer server = new RestCatalogServer(args[0], args[1]);
    HttpServer http =
        HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
    http.setExecutor(Executors.newFixedThreadPool(8));
    http.createContext("/", server::handle);
    http.start();
    System.out.println(http.getAddress().getPort());
    System.out.flush();
    while (System.in.read() >= 0) {}
    System.exit(0);
  }

  private void handle(HttpExchange exchange) throws IOException {
    try (exchange) {
      byte[] request = exchange.getRequestBody().readAllBytes();
      Answer answer;
      try {
        answer = answer(exchange, request);
      } catch (Exception error) {
        answer = failure(error);
      }
      if (answer == null) {
        return; // closing without an answer cuts the connection
      }
      byte[] body = answer.body == null ? new byte[0] : mapper.writeValueAsBytes(answer.body);
      exchange.getResponseHeaders().add("Content-Type", "application/json");
      boolean empty = body.length == 0 || exchange.getRequestMethod().equals("HEAD");
      exchange.sendResponseHeaders(answer.status, empty ? -1 : body.length);
      if (!empty) {
        exchange.getResponseBody().write(body);
      }
    }
  }

  private Answer answer(HttpExchange exchange, byte[] body) throws IOException {
    URI uri = exchange.getRequestURI();
    String[] path = uri.getRawPath().substring(1).split("/");
    String method = exchange.getRequestMethod();
    if (path[0].equals("fault")) {
      fault.set(path[1]);
      return new Answer(204, null);
    }
    if (!TOKEN.equals(exchange.getRequestHeaders().getFirst("Authorization"))) {
      return error(401, "NotAuthorizedException", "who are you? " + TOKEN.substring(0, 6));
    }
    if (path.length == 2 && path[1].equals("config")) {
      return new Answer(200, ConfigResponse.builder().build());
    }
    if (path.length == 3 && path[1].equals("tables") && path[2].equals("rename")) {
      CatalogHandlers.renameTable(catalog, mapper.readValue(body, RenameTableRequest.class));
      return new Answer(204, null);
    }
    if (path.length < 2 || !path[1].equals("namespaces")) {
      return error(404, "NotFound", uri.getPath());
    }
    Namespace namespace =
        path.length < 3 ? Namespace.empty() : Namespace.of(decoded(path[2]).split("\u001f"));
    return path.length < 4
        ? namespaces(method, namespace, body)
        : tables(method, namespace, path.length < 5 ? null : decoded(path[4]), body);
  }

  private Answer namespaces(String method, Namespace namespace, byte[] body) throws IOException {
    return switch (method) {
      case "GET" ->
          namespace.isEmpty()
              ? new Answer(200, CatalogHandlers.listNamespaces(catalog, namespace))
              : new Answer(200, CatalogHandlers.loadNamespace(catalog, namespace));
      case "HEAD" -> {
        CatalogHandlers.namespaceExists(catalog, namespace);
        yield new Answer(204, null);
      }
      case "POST" ->
          new Answer(
              200,
              CatalogHandlers.createNamespace(
                  catalog, mapper.readValue(body, CreateNamespaceRequest.class)));
      default -> error(405, "NotAllowed", method);
    };
  }

  private Answer tables(String method, Namespace namespace, String name, byte[] body)
      throws IOException {
    if (name == null) {
      return method.equals("POST")
          ? new Answer(
              200,
              CatalogHandlers.createTable(
                  catalog, namespace, mapper.readValue(body, CreateTableRequest.class)))
          : new Answer(200, CatalogHandlers.listTables(catalog, namespace));
    }
    TableIdentifier table = TableIdentifier.of(namespace, name);
    return switch (method) {
      case "GET" -> new Answer(200, CatalogHandlers.loadTable(catalog, table, SnapshotMode.ALL));
      case "HEAD" -> {
        CatalogHandlers.tableExists(catalog, table);
        yield new Answer(204, null);
      }
      case "POST" -> commit(table, mapper.readValue(body, UpdateTableRequest.class));
      case "DELETE" -> {
        CatalogHandlers.dropTable(catalog, table);
        yield new Answer(204, null);
      }
      default -> error(405, "NotAllowed", method);
    };
  }

  private Answer commit(TableIdentifier table, UpdateTableRequest request) {
    String kind = fault.getAndSet("");
    Object done = null;
    if (kind.isEmpty() || kind.startsWith("landed-")) {
      done = CatalogHandlers.updateTable(catalog, table, request);
    }
    return switch (kind) {
      case "409", "landed-409" -> error(409, "CommitFailedException", "somebody was faster");
      case "503" -> error(503, "ServiceUnavailableException", "not now");
      case "landed-500" -> error(500, "CommitStateUnknownException", "who knows");
      case "landed-504" -> error(504, "CommitStateUnknownException", "gateway time-out");
      case "landed-cut" -> null;
      default -> new Answer(200, done);
    };
  }

  private static Answer failure(Exception error) {
    int status = 500;
    if (error instanceof NoSuchTableException || error instanceof NoSuchNamespaceException) {
      status = 404;
    } else if (error instanceof AlreadyExistsException || error instanceof CommitFailedException) {
      status = 409;
    } else if (error instanceof ValidationException || error instanceof IllegalArgumentException) {
      status = 400;
    }
    return error(status, error.getClass().getSimpleName(), String.valueOf(error.getMessage()));
  }

  private static Answer error(int status, String type, String message) {
    return new Answer(
        status,
        ErrorResponse.builder().responseCode(status).withType(type).withMessage(message).build());
  }

  private static String decoded(String segment) {
    return URLDecoder.decode(segment, StandardCharsets.UTF_8);
  }
}
